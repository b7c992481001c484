package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	downloadHost    = "200 MB download on the host"
	downloadSandbox = "200 MB download in the sandbox"

	// blobVariable has the address on which this program serves the download, instead of measuring.
	blobVariable  = "PYEXEC_BENCH_SERVE_BLOB"
	downloadBytes = 200 << 20
	// The test host's network is of the range for documentation (RFC 5737), which is neither private nor anybody's.
	hostAddress, blobHost, blobPort = "203.0.113.1", "203.0.113.2", "8000"
)

// downloadProgram prints the time of the download in seconds.
const downloadProgram = `
import sys, time, urllib.request
begin, size = time.perf_counter(), 0
with urllib.request.urlopen(sys.argv[1]) as answer:
    buffer = bytearray(1 << 20)
    while n := answer.readinto(buffer):
        size += n
assert size == 200 << 20, size
print(time.perf_counter() - begin)
`

// download compares a program with a network with the same program on the host. The server is in a network namespace of its own.
func download(b *bench) error {
	if os.Geteuid() != 0 {
		fmt.Println("not root: no test host for a download can be made, and none is measured")
		return nil
	}
	stop, err := startBlob()
	if err != nil {
		return fmt.Errorf("the test host of the download: %w", err)
	}
	defer stop()
	script := filepath.Join(b.dir, "download.py")
	if err := os.WriteFile(script, []byte(downloadProgram), 0o644); err != nil { //nolint:gosec // read by another user
		return err
	}
	url := "http://" + net.JoinHostPort(blobHost, blobPort) + "/"
	body, err := json.Marshal(map[string]any{"code": downloadProgram, "args": []string{url}, "config": map[string]any{"network_disabled": false}})
	if err != nil {
		return err
	}
	return b.interleaveRounds([]measure{
		{downloadHost, 1, func() (time.Duration, error) {
			out, err := exec.Command(b.python, script, url).Output()
			return seconds(string(out), err)
		}},
		{downloadSandbox, 1, func() (time.Duration, error) {
			var v struct{ Status, Stdout, Stderr string }
			err := b.server.JSON(http.MethodPost, "/api/v1/exec/sync", string(body), &v)
			if err == nil && v.Status != "succeeded" {
				err = fmt.Errorf("%+v", v)
			}
			return seconds(v.Stdout, err)
		}},
	}, max(3, min(b.rounds/20, 10)))
}

func seconds(text string, err error) (time.Duration, error) {
	if err != nil {
		return 0, err
	}
	s, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return time.Duration(s * float64(time.Second)), err
}

// startBlob starts a server of the download in a network namespace of its own. The namespace and its link end with the server, and
// the server with this process.
func startBlob() (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	server := exec.Command(self)
	server.Env = append(os.Environ(), blobVariable+"=:"+blobPort)
	server.Stderr = os.Stderr
	server.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}
	pid := fmt.Sprint(server.Process.Pid)
	outside, inside := "pxb"+pid, "pxc"+pid
	within := []string{"nsenter", "--net=/proc/" + pid + "/ns/net"}
	for _, argv := range [][]string{
		{"ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", pid},
		{"ip", "address", "add", hostAddress + "/30", "dev", outside},
		{"ip", "link", "set", outside, "up"},
		append(within, "ip", "address", "add", blobHost+"/30", "dev", inside),
		append(within, "ip", "link", "set", inside, "up"),
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil { //nolint:gosec // our own commands
			stop()
			return nil, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
		}
	}
	if err := answers(net.JoinHostPort(blobHost, blobPort)); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// serveBlob serves the download until it is killed.
func serveBlob(address string) error {
	block := make([]byte, 1<<20)
	server := &http.Server{Addr: address, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(downloadBytes))
		for range downloadBytes / len(block) {
			if _, err := w.Write(block); err != nil {
				return // the client is gone
			}
		}
	})}
	return server.ListenAndServe()
}
