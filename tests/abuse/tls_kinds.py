"""What a hostile client does within TLS and before it, kind by kind, as in kinds.py. Where the Target speaks no TLS, these
are silent connections."""

import ctypes
import ssl
import struct

from kinds import send, wait

UPDATES = 500      # keys that are changed before the bytes are sent
EXTENSION = 60000  # bytes of the extension that makes a hello long
HELLOS = 30        # at a time
HELLOS_KIND = "hellos"


def libssl():
    """OpenSSL itself: Python's ssl cannot change keys."""
    crypto, library = ctypes.CDLL("libcrypto.so.3"), ctypes.CDLL("libssl.so.3")
    pointer, number = ctypes.c_void_p, ctypes.c_int
    for functions, name, result, arguments in (
            (library, "TLS_client_method", pointer, []), (library, "SSL_CTX_new", pointer, [pointer]),
            (library, "SSL_new", pointer, [pointer]), (library, "SSL_free", None, [pointer]),
            (library, "SSL_CTX_free", None, [pointer]), (library, "SSL_set_bio", None, [pointer] * 3),
            (library, "SSL_connect", number, [pointer]), (library, "SSL_do_handshake", number, [pointer]),
            (library, "SSL_key_update", number, [pointer, number]),
            (library, "SSL_set_alpn_protos", number, [pointer, ctypes.c_char_p, ctypes.c_uint]),
            (crypto, "BIO_new", pointer, [pointer]), (crypto, "BIO_s_mem", pointer, []),
            (crypto, "BIO_read", number, [pointer, pointer, number]),
            (crypto, "BIO_write", number, [pointer, ctypes.c_char_p, number])):
        function = getattr(functions, name)
        function.restype, function.argtypes = result, arguments
    return library, crypto


class Session:
    """TLS 1.3 on a socket, of which only the handshake and changes of keys are sent."""

    def __init__(self, connection, alpn):
        self.library, self.crypto = libssl()
        self.connection = connection
        self.context = self.library.SSL_CTX_new(self.library.TLS_client_method())
        self.session = self.library.SSL_new(self.context)
        self.library.SSL_set_alpn_protos(self.session, alpn, len(alpn))
        self.came, self.sent = (self.crypto.BIO_new(self.crypto.BIO_s_mem()) for _ in range(2))
        self.library.SSL_set_bio(self.session, self.came, self.sent)
        self.buffer = ctypes.create_string_buffer(1 << 16)

    def handshake(self):
        while self.library.SSL_connect(self.session) != 1:
            self.connection.sendall(self.bytes_to_send())
            piece = self.connection.recv(65536)
            if piece == b"":
                raise ConnectionResetError
            self.crypto.BIO_write(self.came, piece, len(piece))
        self.connection.sendall(self.bytes_to_send())

    def new_keys(self):
        for _ in range(UPDATES):
            self.library.SSL_key_update(self.session, 0)
            self.library.SSL_do_handshake(self.session)
        return self.bytes_to_send()

    def bytes_to_send(self):
        size = self.crypto.BIO_read(self.sent, self.buffer, len(self.buffer))
        return self.buffer.raw[:max(size, 0)]

    def close(self):
        self.library.SSL_free(self.session)
        self.library.SSL_CTX_free(self.context)


def only_with_tls(run):
    def with_tls(target, over):
        with target.connect_raw() as connection:
            if target.context is None:
                wait(connection, over)
            else:
                run(target, connection, over)
    return with_tls


def new_keys(alpn):
    """Records that change the keys, and no data."""
    def run(target, connection, over):
        session = Session(connection, alpn)
        try:
            session.handshake()
            send(connection, over, iter(session.new_keys, None))
        finally:
            session.close()
    return only_with_tls(run)


def hello(alpn):
    """The first record of a client: its header, and the message in it."""
    context = ssl.create_default_context()
    context.set_alpn_protocols([alpn[1:].decode()])
    sent = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass
    record = sent.read()
    return record[:5], record[5:]


def long_hello(alpn):
    """A hello with an extension that nobody knows."""
    message = hello(alpn)[1][4:]
    extensions = 34                                             # behind the version and the random bytes
    extensions += 1 + message[extensions]                       # the session's id
    extensions += 2 + struct.unpack_from(">H", message, extensions)[0]  # ciphers
    extensions += 1 + message[extensions]                       # compressions
    more = message[extensions + 2:] + struct.pack(">HH", 0xfafa, EXTENSION) + bytes(EXTENSION)
    message = message[:extensions] + struct.pack(">H", len(more)) + more
    return b"\x01" + struct.pack(">I", len(message))[1:] + message


def crumbs(alpn):
    """A long hello in records of one byte."""
    records = b"".join(b"\x16\x03\x01\0\1" + bytes([byte]) for byte in long_hello(alpn))

    def run(target, connection, over):
        send(connection, over, [records])
    return only_with_tls(run)


def hellos(alpn):
    """Clients for which the server signs, if they do not leave before that."""
    first = b"".join(hello(alpn))

    def run(target, connection, over):
        while not over():
            others = [target.connect_raw() for _ in range(HELLOS)]
            for other in others:
                other.sendall(first)
            for number, other in enumerate(others):
                if number % 2:
                    other.recv(1)
                other.close()
    return only_with_tls(run)


def kinds_of(name, alpn):
    return {f"{name} keys": new_keys(alpn), f"{name} crumbs": crumbs(alpn), f"{name} {HELLOS_KIND}": hellos(alpn)}
