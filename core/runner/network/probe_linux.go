package network

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Probe returns why Open cannot work here, or nil. It tries it in a network namespace of its own, for which the process needs
// CAP_SYS_ADMIN.
func Probe() error {
	done := make(chan error)
	go onThread(func() {
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("network namespace: %w", err)
			}
			fd, err := os.Open("/proc/thread-self/ns/net")
			if err != nil {
				return err
			}
			defer fd.Close()
			n, err := Open(int(fd.Fd()), Options{})
			if err != nil {
				return err
			}
			n.Close()
			return nil
		}()
	})
	return <-done
}
