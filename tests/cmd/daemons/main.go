// Command daemons runs a command with a Docker daemon, and with a cluster of Nomad, that all test processes below it share:
//
//	daemons [-docker] [-nomad] -- COMMAND [ARG…]
//
// The environment of COMMAND has PYEXEC_TEST_DOCKER and PYEXEC_TEST_NOMAD, by which packages dockertest and nomadtest find them. -nomad
// implies -docker. What this machine cannot run is left out, and tests then skip or fail as without this command. A daemon at DOCKER_HOST or
// at the default socket is used in place of a private one.
//
// SIGINT, SIGTERM and SIGHUP are passed on to COMMAND. When COMMAND has ended, the daemons are removed, and the exit code is that of
// COMMAND, or 1 if it was 0 and something was left. If this process is killed (-9), COMMAND gets SIGTERM, and a second process removes the daemons.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
	"github.com/python-executor/python-executor/plugins/backend-nomad/nomadtest"
)

// watcher makes this program the second process: it waits for the end of its standard input.
const watcher = "watch-for-the-end"

func main() {
	docker, nomad := flag.Bool("docker", false, "a Docker daemon"), flag.Bool("nomad", false, "a cluster of Nomad, a server and two clients")
	flag.Parse()
	if flag.Arg(0) == watcher {
		watch()
		return
	}
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: daemons [-docker] [-nomad] -- COMMAND [ARG…]")
		os.Exit(2)
	}
	code, err := run(*docker || *nomad, *nomad, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "daemons:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// run starts the daemons, runs the command and removes the daemons.
func run(docker, nomad bool, command []string) (code int, err error) {
	told := make(chan os.Signal, 8)
	signal.Notify(told, unixEnds...)
	done, err := watched()
	if err != nil {
		return 1, err
	}
	defer done()
	begin := time.Now()
	if docker {
		folder, stop, missing := dockertest.Serve()
		if missing != nil {
			fmt.Fprintln(os.Stderr, "daemons: no Docker:", missing)
			nomad = false
		} else {
			defer func() { err = errors.Join(err, stop()) }()
			if folder != "" {
				_ = os.Setenv(dockertest.Variable, folder) // the name is well formed
			}
		}
	}
	if nomad {
		folder, stop, missing := nomadtest.Serve()
		switch {
		case errors.Is(missing, nomadtest.ErrMissing):
			fmt.Fprintln(os.Stderr, "daemons: no Nomad:", missing)
		case missing != nil:
			return 1, missing
		default:
			defer func() { err = errors.Join(err, stop()) }()
			_ = os.Setenv(nomadtest.Variable, folder) // the name is well formed
		}
	}
	fmt.Fprintf(os.Stderr, "daemons: started in %.1f s\n", time.Since(begin).Seconds())
	select {
	case s := <-told:
		return 1, fmt.Errorf("%s before the command began", s)
	default:
		return execute(command, told)
	}
}

// unixEnds are the signals that end a process unless it handles them.
var unixEnds = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

// execute runs the command, passes signals on to it, and returns its exit code.
func execute(command []string, told <-chan os.Signal) (code int, err error) {
	// Pdeathsig refers to the death of the thread that forked.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(command[0], command[1:]...) //nolint:gosec // it is what this command is for
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return 127, err
	}
	ended := make(chan struct{})
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		for {
			select {
			case s := <-told:
				_ = cmd.Process.Signal(s) // it may have ended
			case <-ended:
				return
			}
		}
	}()
	err = cmd.Wait()
	close(ended)
	<-passed
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// watched starts the second process. It ends when done is called, or cleans up when this process was killed.
func watched() (done func(), err error) {
	cmd := exec.Command("/proc/self/exe", watcher)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the signals of a terminal are not for it
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_, _ = in.Write([]byte("done")) // it may have been killed
		in.Close()
		_ = cmd.Wait()
	}, nil
}

// watch waits for the end of the first process. If that did not say that it was done, watch removes what it has left.
func watch() {
	if n, _ := os.Stdin.Read(make([]byte, 8)); n > 0 {
		return
	}
	nomadtest.Sweep()
	dockertest.Sweep()
}
