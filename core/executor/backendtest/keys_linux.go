package backendtest

import (
	"golang.org/x/sys/unix"
)

// keyrings are the keyrings that a process shares with others: those of its session and its user.
var keyrings = []int{unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_USER_SESSION_KEYRING}

// plantKeys adds a key of that name to the keyrings of this process's session and user, until the end of the case. It returns
// the name. On a kernel without keyrings it only logs.
func (c *Case) plantKeys(name string) string {
	for _, ring := range keyrings {
		if _, err := unix.AddKey("user", name, []byte("secret"), ring); err != nil {
			c.Logf("no key can be left in the keyring %d: %v", ring, err)
		}
	}
	c.Cleanup(func() { forgetKeys(name) })
	return name
}

// forgetKeys removes the keys of that name from keyrings.
func forgetKeys(name string) {
	for _, ring := range keyrings {
		if key, err := unix.KeyctlSearch(ring, "user", name, 0); err == nil {
			_, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, key, ring, 0, 0) // the kernel forgets it with its session at the latest
		}
	}
}
