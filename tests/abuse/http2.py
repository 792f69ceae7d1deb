"""HTTP/2 frame by frame (RFC 9113), to send what no client library would."""

import copy
import socket
import ssl
import struct

DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LARGEST_WINDOW = 2**31 - 1


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def text(value):
    """A string of a header, without Huffman code."""
    value = value.encode()
    if len(value) < 127:
        return bytes([len(value)]) + value
    rest, digits = len(value) - 127, []
    while rest >= 128:
        digits.append(rest % 128 | 128)
        rest //= 128
    return bytes([127, *digits, rest]) + value


def block(method):
    """The headers of a gRPC call (RFC 7541). Enters four of them into the decoder's table."""
    headers = [(":path", method), (":authority", "localhost"), ("te", "trailers"), ("content-type", "application/grpc")]
    return b"\x83\x86" + b"".join(b"\x40" + text(name) + text(value) for name, value in headers)


SAME_BLOCK = bytes([0x83, 0x86, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62])  # the same once more, in six bytes


def message(body=b""):
    return struct.pack(">BI", 0, len(body)) + body


def call(stream, headers, body=b""):
    return frame(HEADERS, END_HEADERS, stream, headers) + frame(DATA, END_STREAM, stream, message(body))


def begin():
    """What a client says first: the preface, and windows as wide as they can be."""
    return (PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, LARGEST_WINDOW)) +
            frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", LARGEST_WINDOW - 65535)))


class Target:
    """A server on this machine. `trusted`: the PEM file of its certificate; None: no TLS."""

    def __init__(self, address, trusted=None):
        host, port = address.rsplit(":", 1)
        self.host, self.port = host.strip("[]"), int(port)
        self.source = None  # address of the client; None: the system's choice
        self.context = None
        if trusted is not None:
            self.context = ssl.create_default_context(cafile=trusted)
            self.context.check_hostname = False
            self.context.set_alpn_protocols(["h2"])

    def connect_raw(self, limit=10):
        source = None if self.source is None else (self.source, 0)
        connection = socket.create_connection((self.host, self.port), timeout=limit, source_address=source)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def from_elsewhere(self):
        """The same for a client of another address, if this machine has two."""
        other = copy.copy(self)
        if self.host.startswith("127."):
            other.source = "127.0.0.2"
        return other

    def connect(self, limit=10):
        connection = self.connect_raw(limit)
        if self.context is None:
            return connection
        try:
            return self.context.wrap_socket(connection, server_hostname="localhost")
        except BaseException:
            connection.close()
            raise


class Frames:
    """Reads frames from a socket."""

    def __init__(self, connection):
        self.connection = connection
        self.received = b""

    def next(self):
        """Kind, flags, stream and payload; None at the end."""
        while True:
            if len(self.received) >= 9:
                size = 9 + int.from_bytes(self.received[:3], "big")
                if len(self.received) >= size:
                    kind, flags, stream = struct.unpack(">BBI", self.received[3:9])
                    payload = self.received[9:size]
                    self.received = self.received[size:]
                    return kind, flags, stream, payload
            more = self.connection.recv(65536)
            if not more:
                return None
            self.received += more
