package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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

// startBlob makes a network namespace with a server of the download. stop ends both.
func startBlob() (stop func(), err error) {
	name := fmt.Sprintf("pyexec-bench-%d", os.Getpid())
	outside, inside := fmt.Sprintf("pxb%d", os.Getpid()), fmt.Sprintf("pxc%d", os.Getpid())
	var server *exec.Cmd
	stop = func() {
		if server != nil {
			_ = server.Process.Kill()
			_ = server.Wait()
		}
		_ = ip("link", "delete", outside)
		_ = ip("netns", "delete", name)
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	for _, args := range [][]string{
		{"netns", "add", name},
		{"link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name},
		{"address", "add", hostAddress + "/30", "dev", outside},
		{"link", "set", outside, "up"},
		{"-n", name, "address", "add", blobHost + "/30", "dev", inside},
		{"-n", name, "link", "set", inside, "up"},
		{"-n", name, "link", "set", "lo", "up"},
	} {
		if err := ip(args...); err != nil {
			return nil, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(blobHost, blobPort)
	server = exec.Command("ip", "netns", "exec", name, self)
	server.Env = append(os.Environ(), blobVariable+"="+address)
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		server = nil
		return nil, err
	}
	return stop, answers(address)
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("ip %s: %w", strings.Join(args, " "), err), errors.New(strings.TrimSpace(string(out))))
	}
	return nil
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
