"""One TLS session over memory buffers: ciphertext in and out as bytes, no socket and no loop.

Not the loop's own TLS transport: that one hides how much is still unwritten (asyncio's reports an empty
buffer while the transport below holds 64 KiB; uvloop's has no way to ask), keeps a connection half alive for
its shutdown, and cannot be handed what is left in the socket after a failed write.
"""

from __future__ import annotations

import ssl

_RECORD = 16 * 1024


class TlsSession:
    """Client side of one TLS connection."""

    def __init__(self, context: ssl.SSLContext, server_hostname: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        self.closed = False
        """The peer said close_notify: everything it had to say has been read."""
        self.error: ssl.SSLError | None = None
        """What broke the session while reading, once something did."""

    def handshake(self, data: bytes) -> bool:
        """Take what arrived and go on; return whether the handshake is done. Then, and before, send `outgoing()`.

        Raises:
            ssl.SSLError: the handshake failed; `SSLCertVerificationError` when the certificate did not verify.
        """
        self._incoming.write(data)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def outgoing(self) -> bytes:
        """Take the ciphertext that waits to be sent."""
        return self._outgoing.read()

    def encrypt(self, data: bytes | memoryview) -> bytes:
        """Turn `data` into ciphertext, with whatever else waited to be sent.

        Raises:
            ssl.SSLError: the session is closed or broken.
        """
        self._object.write(data)
        return self._outgoing.read()

    def decrypt(self, data: bytes) -> bytes:
        """Return the plain text that `data` completes. An error is kept in `error`, after what came before it."""
        self._incoming.write(data)
        parts = []
        try:
            while self._incoming.pending or self._object.pending():
                part = self._object.read(_RECORD)
                if not part:
                    self.closed = True
                    break
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as exc:
            self.error = exc
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def say_goodbye(self) -> bytes:
        """Return the close_notify to send, as far as the session can still produce one."""
        try:
            self._object.unwrap()
        except ssl.SSLError:
            pass
        return self._outgoing.read()
