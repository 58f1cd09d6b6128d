"""AdminService: the tokens and tenants of the deployment. The interceptor has asked whether the caller is an admin."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from modelmeter.v1 import admin_service_pb2, admin_service_pb2_grpc
from modelmeter_server.core.calls import CallOutcome
from modelmeter_server.core.errors import failure
from modelmeter_server.core.outcomes import Cause, Code, Kind
from modelmeter_server.core.tenants import OPEN
from modelmeter_server.engine.plan import mistaken
from modelmeter_server.identity.token_file import NoSuchToken, TokenEnded, TokenFile, TokenFileError
from modelmeter_server.telemetry.log import get_logger

from .convert_admin import checked_name, end_of_life, fill_tenant, fill_token, moment, overlap_of
from .convert_request import Violations
from .identity import current_principal
from .paging import page_asked, page_of
from .status import trailer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grpc.aio import ServicerContext

    from modelmeter.v1.admin_service_pb2 import (
        CreateTokenRequest,
        CreateTokenResponse,
        ExpireTokenRequest,
        ExpireTokenResponse,
        GetTenantRequest,
        GetTenantResponse,
        ListTenantsRequest,
        ListTenantsResponse,
        ListTokensRequest,
        ListTokensResponse,
        RevokeTokenRequest,
        RevokeTokenResponse,
        RotateTokenRequest,
        RotateTokenResponse,
    )
    from modelmeter_server.core.tokens import TokenRecord
    from modelmeter_server.identity.authenticator import CallerAuthenticator

_Done = TypeVar("_Done")
_Item = TypeVar("_Item")

_log = get_logger(__name__)


class AdminService(admin_service_pb2_grpc.AdminServiceServicer):
    """Serve operators. Every change is logged with the id of the token, never with the token."""

    def __init__(self, authenticator: CallerAuthenticator | None) -> None:
        self.reconfigure(authenticator)

    def reconfigure(self, authenticator: CallerAuthenticator | None) -> None:
        """Tell other tenants, and the tokens of another file, from now on."""
        self._tokens = authenticator.tokens if authenticator is not None else None
        self._tenants = authenticator.tenants if authenticator is not None else {OPEN.name: OPEN}

    async def CreateToken(
        self, request: CreateTokenRequest, context: ServicerContext[Any, Any]
    ) -> CreateTokenResponse:
        """Make a token."""
        tokens, found, now = await self._file(context), Violations(), time.time()
        name, expires_at = checked_name(request.name, found), end_of_life(request, now, found)
        if request.tenant not in self._tenants:
            found.add("tenant", "must be a tenant of this deployment: ListTenants names them")
        await _refuse_mistakes(found, context)
        record, secret = await _change(
            context, lambda: tokens.create(request.tenant, name=name, expires_at=expires_at)
        )
        _tell("a token was created", record)
        response = admin_service_pb2.CreateTokenResponse(secret=secret)
        fill_token(response.token, record, now)
        return response

    async def RotateToken(
        self, request: RotateTokenRequest, context: ServicerContext[Any, Any]
    ) -> RotateTokenResponse:
        """Make a successor of a token."""
        tokens, found, now = await self._file(context), Violations(), time.time()
        overlap, expires_at = overlap_of(request, found), end_of_life(request, now, found)
        await _refuse_mistakes(found, context)
        record, secret, old = await _change(
            context, lambda: tokens.rotate(request.token_id, overlap=overlap, expires_at=expires_at)
        )
        _tell("a token was rotated", record, previous=old.token_id)
        response = admin_service_pb2.RotateTokenResponse(secret=secret)
        fill_token(response.token, record, now)
        fill_token(response.previous, old, time.time())
        return response

    async def ExpireToken(
        self, request: ExpireTokenRequest, context: ServicerContext[Any, Any]
    ) -> ExpireTokenResponse:
        """Set when a token ends."""
        tokens, found = await self._file(context), Violations()
        at = moment(request.expires_at, "expires_at", found)
        await _refuse_mistakes(found, context)
        record = await _change(context, lambda: tokens.expire(request.token_id, at))
        _tell("a token was told when it ends", record, expires_at=at)
        response = admin_service_pb2.ExpireTokenResponse()
        fill_token(response.token, record, time.time())
        return response

    async def RevokeToken(
        self, request: RevokeTokenRequest, context: ServicerContext[Any, Any]
    ) -> RevokeTokenResponse:
        """End a token for good."""
        tokens = await self._file(context)
        record = await _change(context, lambda: tokens.revoke(request.token_id))
        _tell("a token was revoked", record)
        response = admin_service_pb2.RevokeTokenResponse()
        fill_token(response.token, record, time.time())
        return response

    async def ListTokens(
        self, request: ListTokensRequest, context: ServicerContext[Any, Any]
    ) -> ListTokensResponse:
        """Return a page of tokens."""
        tokens = await self._file(context)
        records = {_order(each): each for each in tokens.records() if request.tenant in ("", each.tenant)}
        page, rest = await _page(records, request, context)
        response = admin_service_pb2.ListTokensResponse(next_page_token=rest)
        now = time.time()
        for record in page:
            fill_token(response.tokens.add(), record, now)
        return response

    async def ListTenants(
        self, request: ListTenantsRequest, context: ServicerContext[Any, Any]
    ) -> ListTenantsResponse:
        """Return a page of tenants."""
        page, rest = await _page(self._tenants, request, context)
        response = admin_service_pb2.ListTenantsResponse(next_page_token=rest)
        for tenant in page:
            fill_tenant(response.tenants.add(), tenant)
        return response

    async def GetTenant(
        self, request: GetTenantRequest, context: ServicerContext[Any, Any]
    ) -> GetTenantResponse:
        """Return one tenant."""
        tenant = self._tenants.get(request.name)
        if tenant is None:
            await _refuse(context, Code.NOT_FOUND, "there is no such tenant; ListTenants names them")
        response = admin_service_pb2.GetTenantResponse()
        fill_tenant(response.tenant, tenant)
        return response

    async def _file(self, context: ServicerContext[Any, Any]) -> TokenFile:
        if self._tokens is None:
            message = "this deployment keeps no tokens: its configuration has no identity.tokens_file"
            await _refuse(context, Code.FAILED_PRECONDITION, message)
        return self._tokens


def _order(record: TokenRecord) -> str:
    """Return what sorts tokens by their age."""
    return f"{record.created_at:012d}/{record.token_id}"


async def _page(
    items: dict[str, _Item],
    request: ListTokensRequest | ListTenantsRequest,
    context: ServicerContext[Any, Any],
) -> tuple[Sequence[_Item], str]:
    """Return the items of a page in the order of their keys, and the token of the next page."""
    found = Violations()
    size, after = page_asked(request, found)
    await _refuse_mistakes(found, context)
    return page_of(items, size, after)


async def _change(context: ServicerContext[Any, Any], change: Callable[[], _Done]) -> _Done:
    """Change the file in a thread: it waits for a lock and for the disk."""
    try:
        return await asyncio.to_thread(change)
    except NoSuchToken:
        await _refuse(context, Code.NOT_FOUND, "there is no token of this id; ListTokens names them")
    except TokenEnded:
        message = "the token has expired or is revoked already"
        await _refuse(context, Code.FAILED_PRECONDITION, message)
    except TokenFileError as error:
        _log.error("the tokens cannot be changed", reason=str(error))
        message = "the file of tokens cannot be changed; the server's log names the reason"
        await _refuse(context, Code.FAILED_PRECONDITION, message)


def _tell(event: str, record: TokenRecord, **facts: object) -> None:
    by = current_principal()
    _log.warning(
        event,
        token_id=record.token_id,
        tenant=record.tenant,
        by=by.subject,
        by_tenant=by.tenant.name,
        **facts,
    )


async def _refuse_mistakes(found: Violations, context: ServicerContext[Any, Any]) -> None:
    if found:
        end = trailer(CallOutcome(call_id="", model_asked="", result=mistaken(found)), mistaken(found))
        await context.abort(end.code, end.message, end.metadata)


async def _refuse(context: ServicerContext[Any, Any], code: Code, message: str) -> NoReturn:
    refusal = failure(Kind.REFUSED, message, cause=Cause.LIMIT, code=code)
    end = trailer(CallOutcome(call_id="", model_asked="", result=refusal), refusal)
    await context.abort(end.code, end.message, end.metadata)
