"""A session: attach, bind, credentials, slots, requests, chains, breaks, renewals.

Model: calls go over the operations connection, from one thread. A thread of the session's own
serves the back connection: it renews the lease, and notes each break before it acknowledges it.
Each slot has the number of its last request; a request stays in `unanswered` until its reply came,
and `resume` sends it again with its slot and number after a connection was lost.
"""

import os
import secrets
import threading
import time

import answers
import calls
import messages
import wire
from connection import Connection, Ended
from faults import FAULTS
from parts import FID

# Seconds between renewals: three in a lease of 15 s.
RENEWAL = 5
NO_TIME = {'seconds': 0, 'nanoseconds': 0}


class Refused(Exception):
    """The server refused a call, with this fault."""

    def __init__(self, status):
        self.fault = FAULTS.get(status, 'Unsupported')
        super().__init__(self.fault)


class Request:
    """A call with the slot and the number that it was sent with: None until then, if the session is
    to choose them."""

    def __init__(self, call, fields, payload=b'', flags=0, slot=None, number=None):
        self.payload, self.flags, self.slot, self.number = payload, flags, slot, number
        self.procedure = calls.NUMBERS[call]
        self.message = calls.encode_call(self.procedure, fields, payload)


class Reply:
    """The reply to a request: a fault, or an answer with its fields and payload."""

    def __init__(self, header, message, payload):
        self.status, self.message, self.payload = header['status'], message, payload
        if not self.status:
            self.answer = answers.ANSWERS[header['procedure']][0]
            self.fields = answers.decode_answer(header['procedure'], message, payload)

    def result(self):
        """The fields of the answer; `payload` is that of the reply. Raises `Refused`."""
        if self.status:
            raise Refused(self.status)
        return {**self.fields, 'payload': self.payload}


def key(fid):
    """A fid as a value that sets can have."""
    return tuple(fid[name] for name in FID.fields)


class Session:
    """A client's session at one server. `breaks` has a pair of fid (as of `key`) and reason for
    each promise that ended."""

    def __init__(self, address, features=wire.CHECKSUMS, authority=None):
        self.address, self.features, self.authority = address, features, authority
        self.client, self.incarnation = secrets.randbits(127) + 1, 1
        self.session, self.credits = 0, 0
        self.numbers, self.unanswered, self.replies = {}, {}, {}
        self.breaks, self.arrived = [], threading.Condition()
        # A test holds acknowledgements back to see that the server waits for them.
        self.acknowledges = threading.Event()
        self.acknowledges.set()
        self.renewals = self.probes = 0
        self.operations = self.back = self.keeper = None
        self.attached = self.attach()
        self.bind()

    def attach(self):
        """Connects, and makes a session or resumes the one that there is. Returns what `attached`
        says. Raises `Ended`, with the fault `Expired` if the client has a later incarnation."""
        self.operations = Connection(self.address, self.features, self.authority)
        message = {'client': self.client, 'incarnation': self.incarnation, 'pid': os.getpid(),
                   'display': b'second implementation'}
        self.operations.send(wire.ATTACH, messages.encode_message(wire.ATTACH, message),
                             session=self.session)
        header, message, _ = self._receive(wire.ATTACHED)
        self.session, self.credits = header['session'], header['credits']
        return messages.decode_message(header, message)

    def bind(self):
        """Makes the back connection and the thread that serves it."""
        self.back = Connection(self.address, self.features, self.authority)
        bind_key = messages.encode_message(wire.BIND, {'key': self.attached['bind_key']})
        self.back.send(wire.BIND, bind_key, session=self.session)
        header, _, _ = self.back.receive()
        assert header['kind'] == wire.BOUND, header
        self.keeper = threading.Thread(target=self._keep, args=(self.back,), daemon=True)
        self.keeper.start()

    def register(self, handle, uid, gid, groups=()):
        """Registers a caller by name, under a handle from 1 to 64."""
        message = {'uid': uid, 'gid': gid, 'count': len(groups), 'groups': list(groups)}
        self.operations.send(wire.CREDENTIAL, messages.encode_message(wire.CREDENTIAL, message),
                             session=self.session, credential=handle)

    def _receive(self, kind):
        """The next frame of a kind over operations. Notes what else comes."""
        while True:
            header, message, payload = self.operations.receive()
            if header['kind'] == kind:
                return header, message, payload
            self._note(self.operations, header, message, payload)

    def _note(self, connection, header, message, payload):
        """Handles a frame that comes while the caller waits for another one."""
        match header['kind']:
            case wire.REPLY:
                slot = (header['slot'], header['request'])
                assert self.unanswered.pop(slot, None), f'a reply to nothing: {header}'
                self.replies[slot] = Reply(header, message, payload)
            case wire.BREAK:
                self._break(connection, header, message)
            case wire.CREDITS:
                # Confirmed at once: calls take the lowest slots, few of the four that are left at
                # least.
                self.credits = header['credits']
                self.operations.send(wire.CREDITS_TAKEN, session=self.session,
                                     request=header['request'])
            case wire.RENEWED:
                self.renewals += messages.decode_message(header, message)['renewed']
            case kind:
                raise AssertionError(f'a frame of kind {kind}')

    def _break(self, connection, header, message):
        items = messages.decode_message(header, message)['items']
        with self.arrived:
            self.breaks += [(key(item['fid']), item['reason']) for item in items]
            self.arrived.notify_all()
        self.acknowledges.wait()
        connection.send(wire.BREAK_ACK, messages.encode_message(wire.BREAK_ACK, {'open': []}),
                        session=self.session, request=header['request'])

    def _keep(self, connection):
        """Serves the back connection until it is over."""
        number, due = 0, time.monotonic()
        try:
            while True:
                if time.monotonic() >= due:
                    number, due = number + 1, time.monotonic() + RENEWAL
                    connection.send(wire.RENEW, session=self.session, request=number)
                if connection.has_more(due - time.monotonic()):
                    self._note(connection, *connection.receive())
        except Ended:
            return

    def saw_break(self, fid, seconds):
        """Whether the promise of a file ends, or has ended, within so many seconds."""
        with self.arrived:
            return self.arrived.wait_for(
                lambda: any(broken == key(fid) for broken, _ in self.breaks), seconds)

    def send(self, request, credential=1):
        """Sends a request, for the first time with the next number of the lowest free slot, if it
        has none yet."""
        if request.slot is None:
            used = {slot for slot, _ in self.unanswered}
            request.slot = next(slot for slot in range(self.credits) if slot not in used)
        if request.number is None:
            request.number = self.numbers.get(request.slot, 0) + 1
            self.numbers[request.slot] = request.number
        self.unanswered[request.slot, request.number] = request
        self.operations.send(
            wire.REQUEST, request.message, request.payload, procedure=request.procedure,
            flags=request.flags, credits=1, session=self.session, request=request.number,
            slot=request.slot, credential=credential)

    def reply(self, request):
        """Waits for the reply to a request. Raises `Ended`."""
        slot = (request.slot, request.number)
        while slot not in self.replies:
            self._note(self.operations, *self.operations.receive())
        return self.replies.pop(slot)

    def cancel(self, request):
        """Asks the server to give a request up. It is answered in any case."""
        self.operations.send(wire.CANCEL, session=self.session, slot=request.slot,
                             request=request.number)

    def probe(self):
        """Asks whether the server is there, and waits for its answer. Raises `Ended`."""
        self.probes += 1
        self.operations.send(wire.PROBE, session=self.session, request=self.probes)
        header, message, _ = self._receive(wire.PROBED)
        messages.decode_message(header, message)
        assert header['request'] == self.probes, header

    def begin(self, call, payload=b'', flags=0, **fields):
        """Sends a call and does not wait for its reply."""
        request = Request(call, fields, payload, flags)
        self.send(request)
        return request

    def call(self, call, payload=b'', **fields):
        """The fields of the answer to a call, with `payload`. Raises `Refused`, `Ended`."""
        return self.reply(self.begin(call, payload, **fields)).result()

    def chain(self, *members):
        """The replies to calls that run one after the other. A member is the name of a call, its
        fields and its payload."""
        last = len(members) - 1
        flags = [wire.CHAIN_MIDDLE] * len(members)
        flags[0], flags[last] = wire.CHAIN_START, wire.CHAIN_END
        requests = [self.begin(call, payload, flag, **fields)
                    for (call, fields, payload), flag in zip(members, flags)]
        return [self.reply(request) for request in requests]

    def lose_connections(self):
        """Closes both connections, as a network that fails does."""
        self.operations.close()
        self.back.cut()
        self.keeper.join()
        self.back.close()

    def resume(self, uid=0, gid=0):
        """Connects again, resumes the session, and sends what has no reply again, as it was. Raises
        `AssertionError` if the session is over."""
        self.attached = self.attach()
        assert self.attached['resumed'], 'the session was not resumed'
        self.bind()
        self.register(1, uid, gid)
        for request in list(self.unanswered.values()):
            self.send(request)

    def detach(self):
        """Ends the session."""
        self.operations.send(wire.DETACH, session=self.session)
        try:
            while True:
                self._note(self.operations, *self.operations.receive())
        except Ended:
            self.lose_connections()
