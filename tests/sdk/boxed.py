"""A server over stdio that tries what it is told to and says what came of it. Legacy era, nothing but Python's own library."""

import ctypes
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time


def rights():
    """The sets of capabilities of this process, as /proc/self/status has them, which a sandbox may close to children."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = struct.pack("Ii", 0x20080522, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, data) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    # Effective, permitted and inheritable of the first 32, then of the others.
    sets = {name: data[n] | data[n + 3] << 32 for n, name in enumerate(["CapEff", "CapPrm", "CapInh"])}
    # PR_CAPBSET_READ, and PR_CAP_AMBIENT with PR_CAP_AMBIENT_IS_SET.
    sets["CapBnd"] = sum(1 << n for n in range(64) if libc.prctl(23, n, 0, 0, 0) == 1)
    sets["CapAmb"] = sum(1 << n for n in range(64) if libc.prctl(47, 1, n, 0, 0) == 1)
    return "".join(f"{name}:\t{bits:016x}\n" for name, bits in sets.items())


def gateway():
    """The process of the gateway: the parent of the process that has started this one. Where a sandbox closes that, the
    latter, which is outside as well."""
    try:
        with open(f"/proc/{os.getppid()}/stat") as stat:
            return int(stat.read().rpartition(")")[2].split()[1])
    except OSError:
        return os.getppid()


def knock(name):
    """Whether what listens at this abstract name says anything to a process that connects and says something."""
    with socket.socket(socket.AF_UNIX) as made:
        try:
            made.connect("\0" + name)
            made.settimeout(20)
            made.sendall(b"0123\n")
            return bool(made.recv(1))
        except OSError:
            return False


def is_open(connection):
    try:
        return bool(connection.recv(1, socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True
    except OSError:
        return False


def hold(name, count, until, began):
    """Holds so many connections, and makes another for each that is closed, until the other end of a pipe is."""
    held = []
    try:
        while not select.select([until], [], [], 0.005)[0]:
            held = [one for one in held if is_open(one)]
            while len(held) < count:
                made = socket.socket(socket.AF_UNIX)
                held.append(made)
                made.connect("\0" + name)
            began()
            began = int
    except OSError:
        began()


def crowd(name, processes, count, until, began):
    """Processes that each hold so many, in sessions of their own, and whose parent has ended."""
    for _ in range(processes):
        parent = os.fork()
        if parent == 0:
            os.setsid()
            if os.fork() == 0:
                hold(name, count, until, began)
            os._exit(0)
        os.waitpid(parent, 0)


def door(name, processes):
    """What a program comes to that knocks, also by others that it starts; they go on until it ends."""
    until, ours = os.pipe()
    told, ready = os.pipe()
    PIPES.append(ours)

    def began():
        os.write(ready, b"h" if knock(name) else b"r")
    began()
    crowd(name, processes, 8, until, began)
    said = b""
    while len(said) < processes + 1:
        said += os.read(told, 1024)
    return "heard" if b"h" in said else "refused"


def flood(name, until):
    """Connects again and again, and says nothing."""
    while time.monotonic() < until:
        with socket.socket(socket.AF_UNIX) as made:
            try:
                made.connect("\0" + name)
                CONNECTED.append(1)
            except OSError:
                pass


def attempt(what, arg):
    if what == "read":
        return open(arg).read()[:20]
    if what == "list":
        return ",".join(sorted(os.listdir(arg)))
    if what == "write":
        with open(arg, "w") as file:
            file.write("written")
        return "written"
    if what == "child":
        return subprocess.run(["/bin/cat", arg], capture_output=True, text=True, check=True).stdout[:20]
    if what == "connect":
        host, port = arg.rsplit(":", 1)
        with socket.create_connection((host, int(port)), 5):
            return "connected"
    if what == "path":
        with socket.socket(socket.AF_UNIX) as made:
            made.connect(arg)
        return "connected"
    if what == "datagram":
        one, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        one.sendto(b"through a pair", arg)
        return "sent"
    if what == "terminal":
        # One of its own, which becomes that of its session; held, since a session is ended with its terminal.
        import fcntl
        import termios
        made = os.openpty()
        TERMINALS.append(made)
        if arg == "typed into":
            fcntl.ioctl(made[1], termios.TIOCSCTTY, 0)
            fcntl.ioctl(made[1], termios.TIOCSTI, b"#")
        return "a terminal"
    if what == "hold":
        # It is never answered; the file says which process does not.
        with open(f"{arg}.next", "w") as file:
            file.write(str(os.getpid()))
        os.rename(f"{arg}.next", arg)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            signal.pause()
    if what == "door":
        name, processes = arg.split()
        return door(name, int(processes))
    if what == "flood":
        import threading
        name, seconds, threads = arg.split()
        until = time.monotonic() + float(seconds)
        for _ in range(int(threads)):
            FLOODS.append(threading.Thread(target=flood, args=(name, until), daemon=True))
            FLOODS[-1].start()
        return "begun"
    if what == "flooded":
        for thread in FLOODS:
            thread.join()
        return str(len(CONNECTED))
    if what == "udp":
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        return "a socket"
    if what == "socket":
        family, kind, protocol = map(int, arg.split())
        with socket.socket(family, kind, protocol) as made:
            if family == socket.AF_PACKET:
                made.bind(("lo", 0))
        return "a socket"
    if what == "pair":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.socketpair(int(arg), socket.SOCK_STREAM, 0, (ctypes.c_int * 2)()) == -1:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return "a pair"
    if what == "address":
        # RTM_NEWADDR with NLM_F_REQUEST, NLM_F_ACK, NLM_F_EXCL and NLM_F_CREATE, for an address that is there:
        # nothing changes, and the answer says whether it could have been.
        body = struct.pack("BBBBi", socket.AF_INET, 8, 0, 0, socket.if_nametoindex("lo"))
        for attribute in (1, 2):  # IFA_ADDRESS, IFA_LOCAL
            body += struct.pack("HH", 8, attribute) + socket.inet_aton("127.0.0.1")
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as routes:
            routes.send(struct.pack("IHHII", 16 + len(body), 20, 0x605, 1, 0) + body)
            code = -struct.unpack_from("i", routes.recv(4096), 16)[0]
        if code:
            raise OSError(code, os.strerror(code))
        return "added"
    if what == "interfaces":
        # `getifaddrs`, which asks over netlink.
        class Interface(ctypes.Structure):
            pass
        Interface._fields_ = [("next", ctypes.POINTER(Interface)), ("name", ctypes.c_char_p)]
        first = ctypes.POINTER(Interface)()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.getifaddrs(ctypes.byref(first)) == -1:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        names = set()
        while first:
            names.add(first.contents.name.decode())
            first = first.contents.next
        return ",".join(sorted(names | {name for _, name in socket.if_nameindex()}))
    if what == "lookup":
        return str(socket.getaddrinfo(arg, 80)[0][4][0])
    if what == "fast open":
        host, port = arg.rsplit(":", 1)
        with socket.socket() as made:
            made.sendto(b"at once", 0x20000000, (host, int(port)))  # MSG_FASTOPEN
        return "sent"
    if what == "rights":
        # Of itself, and of what it starts.
        started = subprocess.run([sys.executable, __file__, "rights"], capture_output=True, text=True, check=True)
        return rights() + started.stdout
    if what == "call":
        libc = ctypes.CDLL(None, use_errno=True)
        # The number, and its first argument.
        call, _, first = arg.partition(" ")
        first = gateway() if first == "parent" else first
        if libc.syscall(ctypes.c_long(int(call)), ctypes.c_long(int(first or 0)), 0, 0, 0, 0, 0) == -1:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return "called"
    if what == "threads":
        import threading
        done = []
        threads = [threading.Thread(target=done.append, args=(n,)) for n in range(int(arg))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(done) == int(arg)
        return "done"
    if what == "forks":
        for _ in range(int(arg)):
            child = os.fork()
            if child == 0:
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        return "done"
    if what == "shell":
        said = subprocess.run(["/bin/sh", "-c", arg], capture_output=True, text=True, timeout=15)
        if said.returncode:
            raise OSError(said.returncode, said.stderr[-500:])
        return said.stdout[:100]
    if what == "environ":
        return open(f"/proc/{gateway()}/environ").read()[:20]
    if what == "signal":
        os.kill(gateway(), signal.SIGHUP)
        return "signalled"
    if what == "open files":
        import resource
        return "%d of %d" % resource.getrlimit(resource.RLIMIT_NOFILE)
    if what == "starve":
        # The parent can open nothing more, soon after it has passed the answer on.
        import resource
        import threading
        hard = resource.prlimit(gateway(), resource.RLIMIT_NOFILE)[1]
        limits = (gateway(), resource.RLIMIT_NOFILE, (8, hard))
        threading.Timer(0.2, resource.prlimit, limits).start()
        return "soon"
    if what in ("parent", "itself"):
        # Sets what is in force already, so that nothing changes where it is not refused.
        import resource
        process = gateway() if what == "parent" else 0
        if arg == "limit":
            return resource.prlimit(process, resource.RLIMIT_NOFILE, resource.prlimit(process, resource.RLIMIT_NOFILE))
        if arg == "limits":
            return resource.prlimit(process, resource.RLIMIT_NOFILE)
        if arg == "affinity":
            return os.sched_setaffinity(process, os.sched_getaffinity(process))
        if arg == "scheduler":
            return os.sched_setscheduler(process, os.SCHED_OTHER, os.sched_param(0))
        if arg == "parameters":
            return os.sched_setparam(process, os.sched_param(0))
        if arg == "priority":
            return os.setpriority(os.PRIO_PROCESS, process, os.getpriority(os.PRIO_PROCESS, process))
        if arg == "user":
            return os.setpriority(os.PRIO_USER, process, os.getpriority(os.PRIO_PROCESS, 0))
        if arg == "realtime":
            return os.sched_setscheduler(process, os.SCHED_FIFO, os.sched_param(1))
        if arg == "first":
            return os.setpriority(os.PRIO_PROCESS, process, -20)
        raise ValueError(arg)
    if what == "mode":
        return os.chmod(arg, 0o600)
    if what == "owner":
        return os.chown(arg, os.getuid(), os.getgid())
    if what == "attribute":
        return os.setxattr(arg, "user.portcullis", b"1")
    if what == "mode of an open file":
        with open(arg, "w") as file:
            return os.fchmod(file.fileno(), 0o600)
    if what == "files":
        held = []
        while len(held) < int(arg):
            held.append(open("/dev/null"))
        return "opened"
    if what == "temporary":
        import tempfile
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"written")
        return "written"
    if what == "tmpdir":
        return os.environ["TMPDIR"]
    if what == "core":
        import resource
        return str(resource.getrlimit(resource.RLIMIT_CORE)[1])


if sys.argv[1:] == ["rights"]:
    print(rights(), end="")
    sys.exit()
if sys.argv[1:2] == ["door"]:
    # From outside, until standard input is closed. Says a line for each process that holds what it can.
    ABSTRACT, ORPHANS, CHILDREN, EACH = sys.argv[2], *map(int, sys.argv[3:])
    crowd(ABSTRACT, ORPHANS, EACH, 0, lambda: os.write(1, b"holds\n"))
    for _ in range(CHILDREN):
        if os.fork() == 0:
            hold(ABSTRACT, EACH, 0, lambda: os.write(1, b"holds\n"))
            os._exit(0)
    sys.stdin.read()
    sys.exit()
PIPES = []
TERMINALS = []
FLOODS = []
CONNECTED = []
TOOL = {"name": "try", "inputSchema": {"type": "object", "properties": {"what": {"type": "string"}, "arg": {"type": "string"}}}}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        answer["result"] = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                            "serverInfo": {"name": "boxed", "version": "1"}}
    elif message["method"] == "tools/list":
        try:
            if sys.argv[1:2] == ["list"]:
                attempt(*sys.argv[2:])
            answer["result"] = {"tools": [TOOL]}
        except OSError as error:
            answer["error"] = {"code": -32603, "message": str(error)}
    elif message["method"] == "tools/call":
        arguments = message["params"]["arguments"]
        try:
            text, failed = attempt(arguments["what"], arguments.get("arg", "")), False
        except Exception as error:
            text, failed = f"{type(error).__name__}: {error}", True
        if failed and arguments.get("as") == "error":
            answer["error"] = {"code": -32603, "message": text}
        else:
            answer["result"] = {"content": [{"type": "text", "text": str(text)}], "isError": failed}
    else:
        answer["error"] = {"code": -32601, "message": "method not found"}
    print(json.dumps(answer), flush=True)
