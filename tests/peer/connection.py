"""One connection to a server: how it is made, its hello, and frames one at a time.

A connection that ends raises `Ended`, whether the server said goodbye or only closed it.
"""

import select
import socket
import ssl

import messages
import wire
from fields import Malformed

# Seconds until a silent server counts as dead.
PATIENCE = 30
# The name that the certificate of each server of a cell has.
SERVER_NAME = 'server.rialto.internal'


class Ended(Exception):
    """The connection is over. `status` is the fault of the goodbye, 0 without one."""

    def __init__(self, reason, status=0):
        super().__init__(f'{reason} (fault {status})')
        self.status = status


class RefusedHello(Exception):
    """The server refused the hello, for the reason with the number `refusal`."""

    def __init__(self, refusal, text):
        super().__init__(text)
        self.refusal = refusal


def _connected(address, authority):
    """A connected socket. `address` is unix:PATH, clear:HOST:PORT or tls:HOST:PORT; `authority` the
    file with the certificate that signs those of the cell's servers. Over TCP it comes from a port
    below 1024 if this process may have one, as a host whose users are to be believed does."""
    kind, place = address.split(':', 1)
    if kind == 'unix':
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(PATIENCE)
        sock.connect(place)
        return sock
    host, port = place.rsplit(':', 1)
    sock = _from_low_port((host, int(port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if kind == 'clear':
        return sock
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context.wrap_socket(sock, server_hostname=SERVER_NAME)


def _from_low_port(to):
    """A socket that is connected to a host and port, from the highest port below 1024 that is
    free."""
    for port in range(1023, 511, -1):
        sock = socket.socket()
        sock.settimeout(PATIENCE)
        try:
            sock.bind(('', port))
            sock.connect(to)
            return sock
        except PermissionError:
            sock.connect(to)
            return sock
        except OSError as error:
            sock.close()
            if isinstance(error, ConnectionRefusedError):
                raise
    raise OSError('no port below 1024 is free')


def _features(address, features):
    """The features to ask for: in clear text always both checksums, over TLS neither."""
    sums = wire.CHECKSUMS | wire.PAYLOAD_CHECKSUMS
    if address.startswith('clear:'):
        return features | sums
    return features & ~sums if address.startswith('tls:') else features


class Connection:
    """A connection after its hello. One thread uses it."""

    def __init__(self, address, features, authority=None):
        """Raises `RefusedHello`, `Ended`, or `OSError` if there is no server."""
        self.socket = _connected(address, authority)
        self.socket.sendall(wire.encode_hello(wire.hello_of(_features(address, features))))
        self.terms = wire.decode_hello(self._bytes(wire.HELLO_ANSWER_BYTES))
        if self.terms['refusal']:
            raise RefusedHello(self.terms['refusal'], self.terms['text'].rstrip(b'\0').decode())
        self.features = self.terms['features']

    def _bytes(self, count):
        parts = bytearray()
        while len(parts) < count:
            part = self.socket.recv(min(count - len(parts), 1 << 18))
            if not part:
                raise Ended('the server closed the connection')
            parts += part
        return bytes(parts)

    def send(self, kind, message=b'', payload=b'', **header):
        """Sends a frame with these header fields. Raises `Ended`, or `Malformed` for a frame that
        may not be."""
        frame = wire.encode_frame(kind, message, payload, self.features, **header)
        self.send_bytes(frame)

    def send_bytes(self, data):
        """Sends bytes that may be no frame. Raises `Ended`."""
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Ended(str(error)) from error

    def has_more(self, seconds):
        """Whether anything comes, or the end, within so many seconds."""
        if getattr(self.socket, 'pending', int)():
            return True
        return bool(select.select([self.socket], [], [], max(0, seconds))[0])

    def receive(self):
        """Header, message and payload of the next frame; a goodbye raises `Ended` as the end does.
        Raises `TimeoutError` if nothing comes."""
        try:
            header = wire.decode_header(self._bytes(wire.HEADER_BYTES))
            message = self._bytes(header['message_bytes'])
            payload = self._bytes(header['payload_bytes'])
        except (ConnectionError, ssl.SSLError) as error:
            raise Ended(str(error)) from error
        wire.check_frame(header, message, payload, self.features)
        if header['kind'] == wire.GOODBYE:
            reason = messages.decode_message(header, message)['reason']
            raise Ended(reason.decode(), header['status'])
        if not header['kind'] > 64:
            raise Malformed(f'a server sends no frame of kind {header["kind"]}')
        return header, message, payload

    def cut(self):
        """Ends it for both sides. A thread that receives from it gets `Ended`."""
        try:
            # Not that of the TLS socket, which then takes what comes for clear text.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)
        except OSError:
            pass  # The other side was first.

    def close(self):
        """Ends it; it is not used any more."""
        self.cut()
        self.socket.close()
