package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
)

// service is a part that serves others until the end.
type service struct {
	name  string
	stdin io.Closer
	said  *bytes.Buffer // what it printed to its standard error; complete when ended is closed
	ended chan struct{}
	err   error // set before ended is closed
}

// serve starts a part that serves, and returns when it is ready.
func (r *runner) serve(ctx context.Context, cmd *exec.Cmd, said *bytes.Buffer) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	s := &service{name: strings.Join(cmd.Args, " "), stdin: stdin, said: &bytes.Buffer{}, ended: make(chan struct{})}
	cmd.Stderr = s.said
	if err := cmd.Start(); err != nil {
		return err
	}
	ready := make(chan []string, 1)
	go func() {
		defer close(s.ended)
		lines := bufio.NewScanner(stdout)
		var variables []string
		for lines.Scan() {
			if lines.Text() == "" {
				ready <- variables
				break
			}
			variables = append(variables, lines.Text())
		}
		_, _ = io.Copy(io.Discard, stdout)
		s.err = cmd.Wait()
	}()
	select {
	case variables := <-ready:
		fmt.Fprintln(said, strings.Join(variables, "\n"))
		r.mu.Lock()
		defer r.mu.Unlock()
		r.served = append(r.served, variables...)
		r.services = append(r.services, s)
		return nil
	case <-s.ended:
		said.Write(s.said.Bytes())
		return errors.Join(errors.New("it ended before it was ready"), s.err)
	case <-ctx.Done():
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		<-s.ended
		return context.Cause(ctx)
	}
}

// endServices ends what serves, and says what went wrong.
func (r *runner) endServices() (err error) {
	for _, s := range r.services {
		s.stdin.Close()
		<-s.ended
		if s.err != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w\n%s", s.name, s.err, s.said))
		}
	}
	r.services = nil
	return err
}
