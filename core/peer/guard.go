package peer

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"
)

// UIDRange is a range of user ids, both ends included.
type UIDRange struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// Guard refuses connections from sockets of certain users of this host. It is safe for concurrent use. The nil Guard
// refuses nothing.
//
// Only peers with an address of this host are looked up in the kernel's socket tables. The goroutine that reads first from a
// connection makes the lookup, once. A socket belongs to the user who created it, even if another process holds the
// descriptor later.
//
// A peer on this host whose owner cannot be determined is refused. When the last descriptor of a socket is closed, the kernel
// forgets its owner and shows root with inode zero. Otherwise a program could send a request, close its socket before the
// lookup, and pass for root. As a consequence, a client that closes its socket without waiting for the answer may be refused.
type Guard struct {
	log *slog.Logger

	mu      sync.Mutex
	refused []*UIDRange       // one for each call of Refuse that is not taken back
	table   table             // nil while nothing is refused
	logged  map[int]time.Time // when a refusal of each uid was last logged
}

// table finds the owner of a socket of this host by its addresses.
type table interface {
	// owner returns the uid that owns the socket whose own address is local and whose peer is remote.
	owner(local, remote *net.TCPAddr) (uid int, err error)
}

// New returns a Guard that refuses the uids of the ranges; nil if there are none. log may be nil.
func New(refused []UIDRange, log *slog.Logger) *Guard {
	if len(refused) == 0 {
		return nil
	}
	g := NewEmpty(log)
	g.Refuse(refused)
	return g
}

// NewEmpty returns a Guard that refuses nothing before Refuse is called. log may be nil.
func NewEmpty(log *slog.Logger) *Guard {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Guard{log: log, logged: map[int]time.Time{}}
}

// Refuse adds ranges. It counts for the connections that are accepted from now on. allow takes them back, when no program runs under
// their uids any more; a uid that another call has named stays refused.
func (g *Guard) Refuse(more []UIDRange) (allow func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var added []*UIDRange
	for _, r := range more {
		added = append(added, &r)
	}
	g.refused = slices.Concat(g.refused, added) // check reads the slice without the lock
	if len(g.refused) > 0 && g.table == nil {
		g.table = newTable(g.log)
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.refused = slices.DeleteFunc(slices.Clone(g.refused), func(r *UIDRange) bool { return slices.Contains(added, r) })
	}
}

// Refused returns the ranges that are refused, each once.
func (g *Guard) Refused() (ranges []UIDRange) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.refused {
		if !slices.Contains(ranges, *r) {
			ranges = append(ranges, *r)
		}
	}
	return ranges
}

// Listener returns l with connections that check their peer. Accept does not wait for the check.
func (g *Guard) Listener(l net.Listener) net.Listener {
	if g == nil {
		return l
	}
	return &listener{l, g}
}

// errRefused is the error of a connection whose peer is one of the refused users.
var errRefused = errors.New("the peer is a program of this server")

// unknownUID stands for an owner that could not be determined.
const unknownUID = -1

// check returns an error if the connection between local, which is the server's address, and remote must be refused.
func (g *Guard) check(local, remote net.Addr) error {
	g.mu.Lock()
	refused, table := g.refused, g.table
	g.mu.Unlock()
	if len(refused) == 0 {
		return nil
	}
	to, okTo := local.(*net.TCPAddr)
	from, okFrom := remote.(*net.TCPAddr)
	if !okTo || !okFrom {
		g.refusal(unknownUID, remote, errors.New("not a TCP connection"))
		return errRefused
	}
	if !onThisHost(to, from) {
		return nil
	}
	uid, err := table.owner(from, to)
	if err != nil {
		g.refusal(unknownUID, remote, err)
		return errRefused
	}
	if slices.ContainsFunc(refused, func(r *UIDRange) bool { return r.First <= uid && uid <= r.Last }) {
		g.refusal(uid, remote, errRefused)
		return errRefused
	}
	return nil
}

// logEvery is how often refusals of one uid are logged at most.
const logEvery = time.Minute

// refusal logs that a peer was refused.
func (g *Guard) refusal(uid int, remote net.Addr, why error) {
	now := time.Now()
	g.mu.Lock()
	last, known := g.logged[uid]
	quiet := known && now.Sub(last) < logEvery
	if !quiet {
		g.logged[uid] = now
	}
	g.mu.Unlock()
	if !quiet {
		g.log.Warn("connection refused", "peer_uid", uid, "remote", remote, "reason", why)
	}
}

type listener struct {
	net.Listener
	guard *Guard
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c, ok := accepted.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("accept: %T is not a TCP connection", accepted), accepted.Close())
	}
	return &conn{TCPConn: c, guard: l.guard}, nil
}

// conn is a TCP connection that checks its peer before anything is read from it.
type conn struct {
	*net.TCPConn
	guard *Guard
	once  sync.Once
	err   error
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if err := c.admit(); err != nil {
		return 0, err
	}
	return c.TCPConn.Read(p)
}

// WriteTo implements io.WriterTo.
func (c *conn) WriteTo(w io.Writer) (int64, error) {
	if err := c.admit(); err != nil {
		return 0, err
	}
	return c.TCPConn.WriteTo(w)
}

// admit checks the peer once. For a refused peer it returns io.EOF, because net/http then writes no answer of its own.
func (c *conn) admit() error {
	c.once.Do(func() {
		if c.guard.check(c.LocalAddr(), c.RemoteAddr()) != nil {
			c.refuse()
			c.err = io.EOF
		}
	})
	return c.err
}

// body is the answer to a refused peer, and refuseTime bounds the time of writing it.
const (
	body = `{"type":"about:blank","title":"Forbidden","status":403,"code":"denied",` +
		`"detail":"the client must not be a program that this server runs, and the kernel must show the owner of the connection"}` + "\n"
	refuseTime = time.Second
)

// refuse answers 403 and closes the connection.
func (c *conn) refuse() {
	_ = c.SetDeadline(time.Now().Add(refuseTime))
	_, _ = fmt.Fprintf(c.TCPConn, "HTTP/1.1 403 Forbidden\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	_ = c.Close() // the peer may have gone
}
