package backendtest

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// closedAddresses has a server on this host's loopback, and a port where nobody listens. What is said of both must be the same.
func closedAddresses(c *Case) {
	c.need(c.caps().Requirements, "requirements")
	listen := func() net.Listener {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			c.Fatalf("listen: %v", err)
		}
		c.Cleanup(func() { _ = l.Close() }) // it may be closed
		return l
	}
	open, closed := listen(), listen()
	ports := []string{portOf(open), portOf(closed)}
	if err := closed.Close(); err != nil {
		c.Fatalf("close: %v", err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "127.1", "[::ffff:127.0.0.1]", "10.0.0.1", "169.254.169.254", "[fd00::1]", "intranet"} {
		var said []string
		for _, port := range ports {
			job := c.job(helloProgram)
			job.Spec.Requirements = "pyexec-law @ https://" + host + ":" + port + "/pyexec_law-1-py3-none-any.whl"
			f := c.run(job).failure(executor.PhasePrepare, executor.Invalid, "public address").result.Failure
			if f.Field != "requirements_txt" {
				c.Errorf("%s: the failure's field is %q", host, f.Field)
			}
			said = append(said, strings.ReplaceAll(f.Message, port, "PORT"))
		}
		if len(slices.Compact(said)) != 1 {
			c.Errorf("%s: an open and a closed port get different answers: %q", host, said)
		}
	}
	// The first connection that waits is this one, so no other came.
	own, err := net.Dial("tcp4", open.Addr().String())
	if err != nil {
		c.Fatalf("dial: %v", err)
	}
	defer own.Close() //nolint:errcheck // nothing was written
	first, err := open.Accept()
	if err != nil {
		c.Fatalf("accept: %v", err)
	}
	defer first.Close() //nolint:errcheck // nothing was written
	if first.RemoteAddr().String() != own.LocalAddr().String() {
		c.Errorf("somebody connected to a port of this host: %s", first.RemoteAddr())
	}
}

func portOf(l net.Listener) string {
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) //nolint:forcetypeassert // a TCP listener
}
