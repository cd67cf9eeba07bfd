"""Framing by the grammar of RFC 9112: unambiguous requests are served, all others get one answer and a close.

Each refused request is followed by a second one, which must not run, however the first is interpreted:
the connection carries exactly one answer with as many bytes as announced, and the access log does
not contain the second's path. All cases are sent in one piece, and byte by byte."""

import json
import re
import socket

import pytest

from http_rig import CHAT, Raw, Reply, start_fake, wait_for

PATH = "/v1/chat/completions"
BODY = json.dumps({**CHAT, "max_tokens": 1}).encode()
N = len(BODY)
SECOND = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"


def get(*fields, line=b"GET /health HTTP/1.1", host=b"Host: localhost\r\n", end=b"\r\n"):
    return line + b"\r\n" + host + b"".join(f + b"\r\n" for f in fields) + end


def post(*fields, body=BODY, **how):
    return get(*fields, line=b"POST %s HTTP/1.1" % PATH.encode(), **how) + body


def sized(value, **how):
    return post(b"Content-Length:" + value, **how)


def chunks(body, encoding=b"Transfer-Encoding: chunked", **how):
    return post(encoding, body=body, **how)


def one(size, rest=b"\r\n%s\r\n0\r\n\r\n" % BODY):
    """A body of one chunk with this line of size."""
    return chunks(size + rest)


X = b"%x" % N
WHOLE = b"%s\r\n%s\r\n" % (X, BODY)

VALID = {
    # request line
    "a plain GET": get(),
    "an empty line in front": b"\r\n" + get(),
    "a query": get(line=b"GET /health?a=b&c=%20d HTTP/1.1"),
    "an absolute target": get(line=b"GET http://localhost/health HTTP/1.1"),
    "an absolute target with port": get(line=b"GET http://localhost:80/health HTTP/1.1"),
    "an absolute target with an IPv6 address": get(line=b"GET http://[::1]:80/health HTTP/1.1"),
    "all characters of a path": get(line=b"GET /health?-._~!$&'()*+,;=:@/%7e HTTP/1.1"),
    "HEAD": get(line=b"HEAD /health HTTP/1.1"),
    # fields
    "no blank behind the colon": get(b"X:1"),
    "many blanks behind the colon": get(b"X:" + b" " * 300 + b"1"),
    "a tab behind the colon": get(b"X:\t1"),
    "blanks behind a value": get(b"X: 1" + b" " * 300),
    "a tab behind a value": get(b"X: 1\t"),
    "an empty value": get(b"X:"),
    "a value of blanks": get(b"X: \t "),
    "blanks within a value": get(b"X: a  \t b"),
    "bytes above 127 in a value": get(b"X: caf\xc3\xa9"),
    "all token characters in a name": get(b"!#$%&'*+-.^_`|~09azAZ: 1"),
    "a colon in a value": get(b"X: a:b:c"),
    "a comma and quotes in a value": get(b'X: "a, b", c'),
    "a repeated unknown field": get(b"X: 1", b"X: 2"),
    "a cookie": get(b"Cookie: a=b; c=d"),
    # Host
    "Host with a port": get(host=b"Host: localhost:8080\r\n"),
    "Host with an empty port": get(host=b"Host: localhost:\r\n"),
    "Host as IPv4": get(host=b"Host: 127.0.0.1\r\n"),
    "Host as IPv6": get(host=b"Host: [::1]\r\n"),
    "Host as IPv6 with port": get(host=b"Host: [::1]:8080\r\n"),
    "blanks around Host": get(host=b"Host: \tlocalhost \t\r\n"),
    "Host in capitals": get(host=b"HOST: LOCALHOST\r\n"),
    "Host last": get(b"X: 1", b"Host: localhost", host=b""),
    # Content-Length
    "a length": sized(b" %d" % N),
    "a length without a blank": sized(b"%d" % N),
    "a length in blanks": sized(b" \t%d" % N),
    "a blank behind a length": sized(b" %d " % N),
    "a tab behind a length": sized(b" %d\t" % N),
    "many blanks behind a length": sized(b" %d" % N + b" " * 1000),
    "a length with leading zeros": sized(b" 000%d" % N),
    "a length of 0 on GET": get(b"Content-Length: 0"),
    "a body on GET": get(b"Content-Length: 5") + b"GET /",
    "a length in capitals": post(b"CONTENT-LENGTH: %d" % N),
    # Transfer-Encoding
    "a chunk": chunks(WHOLE + b"0\r\n\r\n"),
    "chunked in capitals": chunks(WHOLE + b"0\r\n\r\n", encoding=b"TRANSFER-ENCODING: CHUNKED"),
    "a blank behind chunked": chunks(WHOLE + b"0\r\n\r\n", encoding=b"Transfer-Encoding: chunked "),
    "tabs around chunked": chunks(WHOLE + b"0\r\n\r\n", encoding=b"Transfer-Encoding:\tchunked\t"),
    "chunks of a byte": chunks(b"".join(b"1\r\n%c\r\n" % b for b in BODY) + b"0\r\n\r\n"),
    "a size in capitals": one(X.upper()),
    "a size with leading zeros": one(b"00000000000000000000" + X),
    "a last chunk of many zeros": chunks(WHOLE + b"0000000\r\n\r\n"),
    "an extension": one(X + b";a"),
    "an extension with a value": one(X + b";a=b"),
    "an extension with a quoted value": one(X + b';a="b c;\\"\r"'.replace(b"\r", b"")),
    "two extensions": one(X + b";a=b;c"),
    "blanks around an extension": one(X + b' ; a = b ; c = "d"'),
    "a long extension": one(X + b";a=" + b"b" * 3000),
    "an extension of the last chunk": chunks(WHOLE + b"0;a=b\r\n\r\n"),
    "a trailer": chunks(WHOLE + b"0\r\nX-Sum: 1\r\n\r\n"),
    "trailers with blanks": chunks(WHOLE + b"0\r\nX: 1 \r\nY:\t2\t\r\nZ:\r\n\r\n"),
    "a long trailer": chunks(WHOLE + b"0\r\nX: " + b"y" * 8000 + b"\r\n\r\n"),
    "Expect and its body at once": sized(b" %d\r\nExpect: 100-continue" % N),
    "a blank behind Expect": sized(b" %d\r\nExpect: 100-continue \t" % N),
}

CONTROLS = [*range(0, 9), 11, 12, *range(14, 32), 127]

INVALID = {
    # request line
    "no version": get(line=b"GET /health"),
    "no target": get(line=b"GET HTTP/1.1"),
    "two spaces behind the method": get(line=b"GET  /health HTTP/1.1"),
    "two spaces behind the target": get(line=b"GET /health  HTTP/1.1"),
    "a space behind the version": get(line=b"GET /health HTTP/1.1 "),
    "a space in front": get(line=b" GET /health HTTP/1.1"),
    "a tab behind the method": get(line=b"GET\t/health HTTP/1.1"),
    "a space in the target": get(line=b"GET /hea lth HTTP/1.1"),
    "two empty lines in front": b"\r\n\r\n" + get(),
    "an empty line by LF in front": b"\n" + get(),
    "a CR in front": b"\r" + get(),
    "the method with a colon": get(line=b"GE:T /health HTTP/1.1"),
    "a method without end": get(line=b"G" * 100 + b" /health HTTP/1.1"),
    "a target without a slash": get(line=b"GET health HTTP/1.1"),
    "a star for GET": get(line=b"GET * HTTP/1.1"),
    "an authority as target": get(line=b"GET localhost:80 HTTP/1.1"),
    "CONNECT": get(line=b"CONNECT localhost:80 HTTP/1.1"),
    "an absolute target without a host": get(line=b"GET http:///health HTTP/1.1"),
    "an absolute target with a user": get(line=b"GET http://a@localhost/health HTTP/1.1"),
    "an absolute target of another scheme": get(line=b"GET ftp://localhost/health HTTP/1.1"),
    "a fragment": get(line=b"GET /health#a HTTP/1.1"),
    "a lone percent": get(line=b"GET /health?%zz HTTP/1.1"),
    "a half percent": get(line=b"GET /health?%1 HTTP/1.1"),
    "%00 in the path": get(line=b"GET /health%00 HTTP/1.1"),
    "%00 in the query": get(line=b"GET /health?a=%00 HTTP/1.1"),
    "brackets in the path": get(line=b"GET /health[1] HTTP/1.1"),
    "brackets behind a host": get(line=b"GET http://localhost/[1] HTTP/1.1"),
    "bytes above 127 in the target": get(line=b"GET /caf\xc3\xa9 HTTP/1.1"),
    "a version in small letters": get(line=b"GET /health http/1.1"),
    "a version without a point": get(line=b"GET /health HTTP/11"),
    "a version of two digits": get(line=b"GET /health HTTP/1.10"),
    "a version with a sign": get(line=b"GET /health HTTP/+1.1"),
    "a version of another protocol": get(line=b"GET /health ICY/1.1"),
    "the request line ends with LF": b"GET /health HTTP/1.1\nHost: localhost\r\n\r\n",
    "a CR within the request line": get(line=b"GET /health\rX HTTP/1.1"),
    "a CR behind the version": get(line=b"GET /health HTTP/1.1\r"),
    # fields
    "a folded length": post(b"Content-Length:\r\n %d" % N),
    "a folded value by a tab": get(b"X: 1\r\n\t2"),
    "a folded value by a space": get(b"X: 1\r\n 2"),
    "a folded name": get(b"X-Api: k\r\n -Key: k"),
    "a blank line that is not empty": get(b" "),
    "a fold behind the request line": get(host=b" X: 1\r\nHost: localhost\r\n"),
    "a space before the colon": get(b"X : 1"),
    "a tab before the colon": get(b"X\t: 1"),
    "a space before the colon of a length": post(b"Content-Length : %d" % N),
    "a space before the colon of an encoding": chunks(WHOLE + b"0\r\n\r\n", encoding=b"Transfer-Encoding : chunked"),
    "an empty name": get(b": 1"),
    "an empty name and value": get(b":"),
    "no colon": get(b"X"),
    "no colon in a length": post(b"Content-Length %d" % N),
    "a space in a name": get(b"X Y: 1"),
    "a name above 127": get(b"caf\xc3\xa9: 1"),
    "a field ends with LF": get(b"X: 1\nY: 2"),
    "a length ends with LF": b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\n\r\n" % (PATH.encode(), N) + BODY,
    "the head ends with LF": get(end=b"\n"),
    "the head ends with LF LF": get(b"X: 1\n", end=b""),
    "the head ends with CR": get(end=b"\rX\r\n"),
    "a CR within a value": get(b"X: 1\r2"),
    "a CR in front of CR LF": get(b"X: 1\r"),
    "a CR within a name": get(b"X\rY: 1"),
    # Host
    "no Host": get(host=b""),
    "two Hosts": get(b"Host: localhost"),
    "two different Hosts": get(b"Host: other"),
    "a space in Host": get(host=b"Host: local host\r\n"),
    "a list in Host": get(host=b"Host: a, b\r\n"),
    "a user in Host": get(host=b"Host: a@localhost\r\n"),
    "a path in Host": get(host=b"Host: localhost/a\r\n"),
    "a query in Host": get(host=b"Host: localhost?a\r\n"),
    "a fragment in Host": get(host=b"Host: localhost#a\r\n"),
    "a URL in Host": get(host=b"Host: http://localhost\r\n"),
    "quotes in Host": get(host=b'Host: "localhost"\r\n'),
    "a bad port in Host": get(host=b"Host: localhost:80a\r\n"),
    "a large port in Host": get(host=b"Host: localhost:65536\r\n"),
    "two ports in Host": get(host=b"Host: localhost:80:80\r\n"),
    "a port alone in Host": get(host=b"Host: :80\r\n"),
    "a bracket in Host": get(host=b"Host: [::1\r\n"),
    "no address in brackets": get(host=b"Host: [localhost]\r\n"),
    "empty brackets": get(host=b"Host: []\r\n"),
    "text behind brackets": get(host=b"Host: [::1]a\r\n"),
    "bytes above 127 in Host": get(host=b"Host: caf\xc3\xa9\r\n"),
    "a backslash in Host": get(host=b"Host: localhost\\a\r\n"),
    "a long Host": get(host=b"Host: " + b"a" * 300 + b"\r\n"),
    "a bad percent in Host": get(host=b"Host: a%2\r\n"),
    # Content-Length
    **{f"a length of {v!r}": sized(v.encode()) for v in [
        "", " ", "abc", "-1", "+%d" % N, "0x10", "1e2", "1.0", "%d,%d" % (N, N), "%d, %d" % (N, N), "%d;" % N, "'%d'" % N,
        "%d 0" % N, "1\t2", "1_0", "٣", "18446744073709551616", "99999999999999999999", "9" * 300, "%da" % N, ",",
        "%d," % N, ",%d" % N]},
    "a length, blanks, a digit": sized(b"%d" % N + b" " * 300 + b"0"),
    "two lengths": post(b"Content-Length: %d" % N, b"Content-Length: 0"),
    "two equal lengths": post(b"Content-Length: %d" % N, b"Content-Length: %d" % N),
    "two lengths in two cases": post(b"Content-Length: %d" % N, b"content-length: %d" % N),
    # Transfer-Encoding
    **{f"an encoding of {v!r}": chunks(WHOLE + b"0\r\n\r\n", encoding=b"Transfer-Encoding:" + v) for v in [
        b"", b" ", b" gzip", b" gzip, chunked", b" chunked, gzip", b" chunked, chunked", b" chunked,", b" ,chunked",
        b" identity", b" identity, chunked", b" xchunked", b" chunkedx", b" chun ked", b" chunked;q=1", b' "chunked"',
        b" chunked\x0b", b" \xc2\xa0chunked", b" chunked" + b" " * 300 + b"x", b" chunke", b" deflate"]},
    "two encodings": post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=WHOLE + b"0\r\n\r\n"),
    "an encoding and another": post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", body=WHOLE + b"0\r\n\r\n"),
    "length and encoding": post(b"Content-Length: 3", b"Transfer-Encoding: chunked", body=WHOLE + b"0\r\n\r\n"),
    "encoding and length": post(b"Transfer-Encoding: chunked", b"Content-Length: 3", body=WHOLE + b"0\r\n\r\n"),
    "encoding and a length of 0": post(b"Transfer-Encoding: chunked", b"Content-Length: 0", body=WHOLE + b"0\r\n\r\n"),
    "chunked in HTTP/1.0": get(b"Transfer-Encoding: chunked", line=b"POST %s HTTP/1.0" % PATH.encode()) + WHOLE + b"0\r\n\r\n",
    # chunks
    **{f"a size of {v!r}": one(v) for v in [
        b"", b" ", b"x", b"-1", b"+" + X, b"0x" + X, b" " + X, X + b" ", X + b"\t", X + b"g", X + b",", X + b" " + X,
        b"1" + b"0" * 16, b"f" * 17, b"f" * 40, X + b"\r", X + b"\x00", X + b"."]},
    **{f"an extension of {v!r}": one(X + v) for v in [
        b";", b"; ", b";a=", b";a= ", b";=b", b";a=b=c", b";a b", b';a="b', b';a="b"c', b';a=b"c"', b";a;", b";;a",
        b";a\x00", b";a=b\x01", b';a="\x00"', b";\xc3\xa9", b";a=b ", b";a ", b";a,b", b';a="b\r"', b";a=b\r"]},
    "a size ends with LF": chunks(X + b"\n" + BODY + b"\r\n0\r\n\r\n"),
    "an extension ends with LF": chunks(X + b";a=b\n" + BODY + b"\r\n0\r\n\r\n"),
    "a quoted extension holds LF": chunks(X + b';a="\n"\r\n' + BODY + b"\r\n0\r\n\r\n"),
    "a chunk ends with LF": chunks(X + b"\r\n" + BODY + b"\n0\r\n\r\n"),
    "a chunk ends with CR": chunks(X + b"\r\n" + BODY + b"\rX0\r\n\r\n"),
    "a chunk without an end": chunks(X + b"\r\n" + BODY + b"0\r\n\r\n"),
    "a chunk longer than its size": chunks(b"%x" % (N - 1) + b"\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "the last chunk ends with LF": chunks(WHOLE + b"0\n\r\n"),
    "the body ends with LF": chunks(WHOLE + b"0\r\n\n"),
    "the body ends with CR": chunks(WHOLE + b"0\r\n\rX\r\n"),
    "a line of size without end": one(X + b";a=" + b"b" * 5000),
    # trailers
    "a folded trailer": chunks(WHOLE + b"0\r\nX: 1\r\n 2\r\n\r\n"),
    "a trailer without a name": chunks(WHOLE + b"0\r\n: 1\r\n\r\n"),
    "a trailer without a colon": chunks(WHOLE + b"0\r\nX\r\n\r\n"),
    "a trailer with a blank before its colon": chunks(WHOLE + b"0\r\nX : 1\r\n\r\n"),
    "a trailer that ends with LF": chunks(WHOLE + b"0\r\nX: 1\n\r\n"),
    "NUL in a trailer": chunks(WHOLE + b"0\r\nX: \x00\r\n\r\n"),
    "a length as trailer": chunks(WHOLE + b"0\r\nContent-Length: 5\r\n\r\n"),
    "an encoding as trailer": chunks(WHOLE + b"0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "a Host as trailer": chunks(WHOLE + b"0\r\nHost: other\r\n\r\n"),
    # other protocols
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 32,
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "HTTP/0.9": b"GET /health\r\n",
    # control characters, NUL among them, in each part of a head
    **{f"byte {c} in the method": get(line=b"G%cT /health HTTP/1.1" % c) for c in CONTROLS},
    **{f"byte {c} in the target": get(line=b"GET /hea%clth HTTP/1.1" % c) for c in CONTROLS},
    **{f"byte {c} in the version": get(line=b"GET /health HTTP/1%c1" % c) for c in (0, 9, 11, 127)},
    **{f"byte {c} in a name": get(b"X%cY: 1" % c) for c in CONTROLS},
    **{f"byte {c} in a value": get(b"X: a%cb" % c) for c in CONTROLS if c != 9},
    **{f"byte {c} in Host": get(host=b"Host: local%chost\r\n" % c) for c in (0, 1, 9, 11, 127)},
    "NUL in a length": sized(b" %d\x00" % N),
    "NUL in front of a length": sized(b" \x00%d" % N),
    "NUL in an encoding": chunks(WHOLE + b"0\r\n\r\n", encoding=b"Transfer-Encoding: chunked\x00"),
    "NUL within an encoding": chunks(WHOLE + b"0\r\n\r\n", encoding=b"Transfer-Encoding: chun\x00ked"),
    "NUL in the name of an encoding": chunks(WHOLE + b"0\r\n\r\n", encoding=b"Transfer-Encoding\x00: chunked"),
    "NUL in a key": get(b"Authorization: Bearer sk\x00x"),
    "NUL in another key": get(b"X-Api-Key: sk\x00x"),
    "NUL at the end of a head": get(end=b"\x00\r\n"),
}

OTHER_STATUS = {
    "HTTP/2": (get(line=b"GET /health HTTP/2.0"), 505),
    "HTTP/2's preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/1.2": (get(line=b"GET /health HTTP/1.2"), 505),
    "HTTP/0.9 as a version": (get(line=b"GET /health HTTP/0.9"), 505),
    "HTTP/3": (get(line=b"GET /health HTTP/3.0"), 505),
    "another expectation": (sized(b" %d\r\nExpect: a-miracle" % N), 417),
    "an expectation with more behind": (sized(b" %d\r\nExpect: 100-continue x" % N), 417),
    "an expectation with more in front": (sized(b" %d\r\nExpect: y 100-continue" % N), 417),
    "an empty expectation": (sized(b" %d\r\nExpect:" % N), 417),
    "two expectations": (sized(b" %d\r\nExpect: 100-continue\r\nExpect: 100-continue" % N), 400),
    "a long target": (get(line=b"GET /" + b"a" * 20000 + b" HTTP/1.1"), 431),
    "a long value": (get(b"X: " + b"a" * 20000), 431),
    "a long name": (get(b"a" * 20000 + b": 1"), 431),
    "many fields": (get(*[b"X: 1"] * 1000), 431),
    "many arguments": (get(line=b"GET /health?" + b"a&" * 1000 + b" HTTP/1.1"), 431),
    "blanks without end": (get(b"X: " + b" " * 20000), 431),
    "a trailer without end": (chunks(WHOLE + b"0\r\nX: " + b"a" * 20000 + b"\r\n\r\n"), 431),
}

REFUSED = {**{name: (data, 400) for name, data in INVALID.items()}, **OTHER_STATUS}


def test_there_are_enough_cases():
    assert len(VALID) >= 50 and len(REFUSED) >= 180


def send_all(c, data, how):
    c.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        for part in [data] if how == "whole" else (data[i : i + 1] for i in range(len(data))):
            c.send(part)
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused while it was sent


def in_pieces(data):
    """Byte by byte only where that is done soon."""
    return ["whole", "bytes"] if len(data) < 2000 else ["whole"]


@pytest.mark.parametrize("name,how", [(n, h) for n, d in VALID.items() for h in in_pieces(d)])
def test_what_has_one_meaning_is_served_and_the_connection_lives(fake, name, how):
    with fake.raw() as c:
        head_only = VALID[name].startswith(b"HEAD")
        send_all(c, VALID[name] + get(b"X-Request-Id: next"), how)
        first = c.reply(head_only=head_only)
        assert first.status == 200 and first.get("x-request-id") != "next"
        second = c.reply()
        assert second.status == 200 and second.get("x-request-id") == "next"
        assert c.buffer == b""


def the_one_answer(data):
    """Parses all bytes of a connection as one answer with exactly the body that it announces."""
    c = Raw.__new__(Raw)
    c.buffer = data
    c.more = lambda: pytest.fail(f"the answer is shorter than announced: {data!r}")
    reply = Reply(None, 100, [], b"")
    while reply.status == 100:
        reply = c.head()
    reply.body = c.exactly(int(reply.get("content-length")))
    assert c.buffer == b"", f"more than one answer: {data!r}"
    return reply


@pytest.mark.parametrize("name,how", [(n, h) for n, (d, _) in REFUSED.items() for h in in_pieces(d)])
def test_all_else_gets_one_answer_and_a_close_and_nothing_behind_it_runs(fake, name, how):
    data, status = REFUSED[name]
    with fake.raw() as c:
        send_all(c, data + SECOND, how)
        reply = the_one_answer(c.rest())
    assert reply.status == status and reply.get("connection").lower() == "close"
    code = {400: "bad_framing", 431: "head_too_large", 417: "expectation_failed", 505: "http_version_not_supported"}
    assert reply.error["code"] == code[status] and reply.error["message"]
    assert reply.get("x-request-id") and reply.get("date") and reply.get("content-type") == "application/json"
    assert "/smuggled" not in fake.log_text()


def test_the_log_would_show_a_second_request(fresh):
    with fresh.raw() as c:
        c.send(get() + SECOND)
        assert c.reply().status == 200 and c.reply().status == 404
    wait_for(lambda: "/smuggled" in fresh.log_text(), "the line of the second")


OPTIONS = get(line=b"OPTIONS * HTTP/1.1")  # answered without a body: several end in one turn of the loop
FRONTS = [
    get(), sized(b" %d" % N), chunks(WHOLE + b"0\r\n\r\n"), get() * 3, post(b"Content-Length: 3", body=b"x{}"),
    OPTIONS, OPTIONS * 5, OPTIONS + get(), OPTIONS * 2 + sized(b" %d" % N), OPTIONS + get(line=b"HEAD /health HTTP/1.1"),
]  # fmt: skip


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("name", ["an empty name", "a folded length", "a length of 'abc'", "a chunk without an end", "NUL in a key"])
def test_a_bad_request_behind_good_ones_is_refused_after_their_answers(fake, front, name):
    """The second of two in one piece: what is in front is answered whole, then comes the refusal."""
    with fake.raw() as c:
        c.send(front + INVALID[name] + SECOND)
        for line in re.findall(rb"[A-Z]+ [^ ]+ HTTP/1.1", front):
            assert c.reply(head_only=line.startswith(b"HEAD")).status in (200, 204, 400)
        reply = the_one_answer(c.rest())
        assert reply.status == 400 and reply.error["code"] == "bad_framing"
    assert "/smuggled" not in fake.log_text()


@pytest.mark.parametrize("name", ["an empty name", "a chunk without an end", "TLS"])
def test_a_bad_request_on_a_kept_connection_is_refused(fake, name):
    with fake.raw() as c:
        for _ in range(3):
            assert c.ask("GET", "/health").status == 200
        c.send(INVALID[name] + SECOND)
        assert the_one_answer(c.rest()).error["code"] == "bad_framing"


def test_a_bad_request_behind_a_stream_waits_for_its_end(fake):
    with fake.raw() as c:
        c.request("POST", PATH, {**CHAT, "stream": True, "max_tokens": 20, "ignore_eos": True})
        c.send(INVALID["an empty name"])
        assert len(c.reply().events()) > 20
        assert the_one_answer(c.rest()).error["code"] == "bad_framing"


def test_nothing_is_answered_behind_a_last_request(fake):
    """After Connection: close, or HTTP/1.0, there is no next request, good or bad."""
    for line, field in [(b"GET /health HTTP/1.1", b"Connection: close"), (b"GET /health HTTP/1.0", b"X: 1")]:
        for behind in [SECOND, INVALID["an empty name"]]:
            with fake.raw() as c:
                c.send(get(field, line=line) + behind)
                assert the_one_answer(c.rest()).status == 200
    assert "/smuggled" not in fake.log_text()


def test_the_answer_to_a_bad_head_request_has_no_body(fake):
    with fake.raw() as c:
        c.send(get(b": 1", line=b"HEAD /health HTTP/1.1"))
        data = c.rest()
    head, body = data.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 400 ") and body == b"" and b"Content-Length: " in head


HEADERS = {  # R08: what is looked at, with blanks behind
    "Authorization": ("Bearer sk-1", 200),
    "X-Api-Key": ("sk-1", 200),
}


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("blanks", ["", " ", "\t", " \t ", " " * 200])
def test_blanks_behind_a_key_are_no_part_of_it(keyed, name, blanks):
    value, status = HEADERS[name]
    with keyed.raw() as c:
        c.send(f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n{name}:{blanks}{value}{blanks}\r\n\r\n")
        assert c.reply().status == status


@pytest.mark.parametrize("blanks", ["", " ", "\t", " \t "])
def test_blanks_behind_other_values_are_no_part_of_them(fake, blanks):
    fields = f"Content-Encoding: identity{blanks}\r\nX-Request-Id: abc-1{blanks}\r\nContent-Type: application/json{blanks}\r\n"
    with fake.raw() as c:
        c.send(f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {N}\r\n\r\n".encode() + BODY)
        reply = c.reply()
        assert reply.status == 200 and reply.get("x-request-id") == "abc-1"


def test_blanks_behind_an_expectation_do_not_keep_a_client_waiting(fake):
    with fake.raw() as c:
        c.send(post(b"Expect: 100-continue \t", b"Content-Length: %d" % N, body=b""))
        assert c.head().status == 100
        c.send(BODY)
        assert c.reply().status == 200


@pytest.fixture(scope="module")
def keyed():
    with start_fake(environment={"MILLRACE_API_KEY": "sk-1"}) as server:
        yield server


@pytest.fixture
def fresh():
    with start_fake() as server:
        yield server
