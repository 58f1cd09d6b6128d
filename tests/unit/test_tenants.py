"""What a tenant may ask for, how confidential, and how its answers are labelled."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.models import ModelSpec
from modelmeter_server.core.outcomes import Code, Kind
from modelmeter_server.core.requests import Sensitivity
from modelmeter_server.core.tenants import OPEN, Tenant
from modelmeter_server.engine.catalog import Catalog
from modelmeter_server.engine.plan import Refused, check_tenant, find_model

LEVELS = st.sampled_from(list(Sensitivity))
MODEL = ModelSpec(name="m", provider="p", provider_kind="replay", provider_model="x")


@given(st.text())
def test_whoever_is_not_asked_may_use_every_model(name):
    assert OPEN.may_use(name)


@given(st.text(), st.text())
def test_a_name_stands_for_itself_and_one_with_a_star_for_all_that_begin_so(name, other):
    exact = Tenant(models=(name,))
    assert exact.may_use(name) or name.endswith("*")
    if not name.endswith("*"):
        assert exact.may_use(other) == (name == other)
    assert Tenant(models=(name + "*",)).may_use(other) == other.startswith(name)
    assert not Tenant(models=()).may_use(name)


@given(prompt=LEVELS, highest=LEVELS, floor=st.none() | LEVELS)
def test_an_answer_is_never_less_confidential_than_its_prompt_or_its_models_floor(prompt, highest, floor):
    label = msgspec.structs.replace(
        MODEL, max_sensitivity=highest, output_sensitivity=floor
    ).answer_sensitivity(prompt)
    assert label == max(prompt, highest if floor is None else floor)


@given(prompt=LEVELS, highest=LEVELS)
def test_a_tenant_sends_nothing_above_its_own_maximum(prompt, highest):
    tenant = Tenant(name="acme", max_sensitivity=highest)
    if prompt <= highest:
        check_tenant(prompt, tenant)
        return
    with pytest.raises(
        Refused, match=f'{prompt.name} and the tenant "acme" may send {highest.name}'
    ) as caught:
        check_tenant(prompt, tenant)
    assert (caught.value.verdict.kind, caught.value.verdict.code) == (Kind.REFUSED, Code.PERMISSION_DENIED)


def test_whether_a_model_exists_is_not_told_to_who_may_not_use_it():
    catalog, tenant = Catalog([MODEL]), Tenant(name="acme", models=("other", "gone"))
    told = []
    for name in ("m", "ghost"):
        with pytest.raises(Refused) as caught:
            find_model(catalog, name, tenant=tenant)
        told.append((caught.value.verdict.code, caught.value.verdict.message))
    assert told[0] == told[1]
    assert told[0][0] is Code.PERMISSION_DENIED
    with pytest.raises(Refused) as caught:
        find_model(catalog, "gone", tenant=tenant)
    assert caught.value.verdict.code is Code.NOT_FOUND


@given(
    st.sets(st.text("abc", min_size=1, max_size=4)),
    st.sets(st.text("abc", min_size=1, max_size=4)),
    st.integers(1, 3),
)
def test_pages_hold_every_model_that_may_be_seen_once_and_no_other(names, seen, size):
    catalog = Catalog([msgspec.structs.replace(MODEL, name=name) for name in names])
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page, after = catalog.page(after, size, seen.__contains__)
        found += [model.name for model in page]
    assert found == sorted(names & seen)
