"""Read the details of a failed call that `buf curl` printed: it leaves them in base64.

buf curl ... 2>&1 | python examples/error_details.py
"""

from __future__ import annotations

import base64
import json
import sys

from google.protobuf import json_format
from google.rpc import error_details_pb2

from modelmeter.v1 import error_pb2

KINDS = {
    kind.DESCRIPTOR.full_name: kind
    for kind in (
        error_pb2.ModelError,
        error_details_pb2.ErrorInfo,
        error_details_pb2.BadRequest,
        error_details_pb2.RetryInfo,
        error_details_pb2.ResourceInfo,
        error_details_pb2.QuotaFailure,
    )
}


def main() -> int:
    """Print each detail as JSON; return 1 when the input tells of no error."""
    try:
        error = json.load(sys.stdin)
        details = error["details"]
    except (ValueError, KeyError, TypeError):
        print("standard input is no error as buf curl prints it", file=sys.stderr)
        return 1
    for detail in details:
        if detail["type"] in KINDS:
            # The padding is left out, and too much of it does no harm.
            message = KINDS[detail["type"]].FromString(base64.b64decode(detail["value"] + "=="))
            fields = json_format.MessageToDict(message, preserving_proto_field_name=True)
            print(detail["type"], json.dumps(fields, indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
