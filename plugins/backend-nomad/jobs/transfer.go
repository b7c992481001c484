package jobs

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor"
)

// transfer serves the runner and the input of jobs to Nomad's clients. An input is a folder of the data folder until its job has started
// or ended, so that a restart of the plugin loses none. Several processes may have one data folder and one address at a time: each can
// serve every request.
type transfer struct {
	folder   string
	key      []byte
	base     string // the URL, without a slash at its end
	runner   []byte // a tar
	sum      string // of runner, in hex
	listener net.Listener
	inner    net.Listener // for the other processes of the data folder
	server   *http.Server
	served   sync.WaitGroup
	log      *slog.Logger

	mu    sync.Mutex
	busy  map[string]bool  // the inputs that are being sent
	feeds map[string]*feed // by the Execution's id
}

// The files of the data folder, beside inputsFolder.
const (
	keyFile      = "transfer.key"
	portFile     = "transfer.port"
	inputsFolder = "inputs"
	// spentFile is in an input that was sent.
	spentFile = ".spent"
)

// newTransfer starts the listener. runner is the content of the runner's file. Codes: invalid (an address that cannot be used), internal.
func newTransfer(c TransferConfig, folder string, runner []byte, log *slog.Logger) (_ *transfer, err error) {
	t := &transfer{folder: folder, busy: map[string]bool{}, feeds: map[string]*feed{}, log: log}
	if err := os.MkdirAll(filepath.Join(folder, inputsFolder), 0o700); err != nil {
		return nil, executor.Errorf(executor.Internal, "data folder: %w", err)
	}
	if t.key, err = readOrMakeKey(filepath.Join(folder, keyFile)); err != nil {
		return nil, executor.Errorf(executor.Internal, "data folder: %w", err)
	}
	if t.runner, err = runnerArchive(runner); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(t.runner)
	t.sum = hex.EncodeToString(sum[:])
	if t.listener, err = t.listen(c.Listen); err != nil {
		return nil, executor.Errorf(executor.Invalid, "transfer.listen: %w", err)
	}
	if t.inner, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, errors.Join(executor.Errorf(executor.Internal, "listen on the loopback address: %w", err), t.listener.Close())
	}
	if t.base = strings.TrimSuffix(c.URL, "/"); t.base == "" {
		t.base = "http://" + t.listener.Addr().String()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /runner/{sum}", t.serveRunner)
	mux.HandleFunc("GET /input/{id}/{part}/{token}", t.serveInput)
	mux.HandleFunc("GET /feed/{id}/{token}", t.serveFeed)
	t.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	for _, l := range []net.Listener{t.listener, t.inner} {
		t.served.Go(func() {
			if err := t.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				log.Error("the listener for Nomad's clients ended", "error", err)
			}
		})
	}
	return t, nil
}

// readOrMakeKey returns the key that signs URLs.
func readOrMakeKey(path string) ([]byte, error) {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // it never fails
	// A link makes the file whole or not at all, and only if there is none.
	draft := path + "." + hex.EncodeToString(key[:8])
	if err := writeSynced(draft, key); err != nil {
		return nil, err
	}
	defer os.Remove(draft) //nolint:errcheck // it is of no use, nor does it harm
	if err := os.Link(draft, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	key, err := os.ReadFile(path)
	if err == nil && len(key) != sha256.Size {
		err = fmt.Errorf("%s must have %d bytes (got %d)", path, sha256.Size, len(key))
	}
	return key, err
}

// listen listens at address. If its port is 0, the former port is taken again where that is possible, so that URLs of a former process
// stay valid.
func (t *transfer) listen(address string) (net.Listener, error) {
	// A new generation of the backend starts before the former one has ended.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		return errors.Join(failed, err)
	}}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	note := filepath.Join(t.folder, portFile)
	if port == "0" {
		if former, err := os.ReadFile(note); err == nil {
			if l, err := config.Listen(context.Background(), "tcp", net.JoinHostPort(host, string(former))); err == nil {
				return l, nil
			}
		}
	}
	l, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	chosen := strconv.Itoa(l.Addr().(*net.TCPAddr).Port) //nolint:forcetypeassert // of a TCP listener
	if err := writeSynced(note, []byte(chosen)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// runnerArchive returns the runner as a tar, which keeps the mode of the file.
func runnerArchive(content []byte) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: runnerFile, Size: int64(len(content)), Mode: 0o755})
	if err == nil {
		_, err = w.Write(content)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, executor.Errorf(executor.Internal, "pack the runner: %w", err)
	}
	return b.Bytes(), nil
}

// runnerURL returns where the runner is.
func (t *transfer) runnerURL() string { return t.base + "/runner/" + t.sum }

func (t *transfer) serveRunner(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("sum") != t.sum {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/x-tar")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(t.runner))
}

// inputFile is one file of an input.
type inputFile struct {
	name    string
	content io.Reader
}

// put keeps the input of a job's task, in the place of a former one, and returns its URL, which is valid until expires. The files are on
// disk when put returns. It returns errors of a content as they are.
func (t *transfer) put(id, part string, expires time.Time, list []inputFile) (string, error) {
	folder := t.input(id, part)
	draft, err := os.MkdirTemp(filepath.Join(t.folder, inputsFolder), ".draft-")
	if err != nil {
		return "", executor.Errorf(executor.Internal, "keep the input: %w", err)
	}
	defer os.RemoveAll(draft) //nolint:errcheck // sweep removes what stays
	for _, f := range list {
		if err := copySynced(filepath.Join(draft, f.name), f.content); err != nil {
			return "", err
		}
	}
	err = syncFolder(draft)
	if err == nil {
		err = os.RemoveAll(folder)
	}
	if err == nil {
		err = os.Rename(draft, folder)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(folder))
	}
	if err != nil {
		return "", executor.Errorf(executor.Internal, "keep the input: %w", err)
	}
	return t.base + "/input/" + id + "/" + part + "/" + t.token(id, part, expires), nil
}

func (t *transfer) input(id, part string) string {
	return filepath.Join(t.folder, inputsFolder, filepath.Base(id)+"."+part)
}

// drop removes the inputs of a job.
func (t *transfer) drop(id string) {
	for _, part := range []string{taskPrepare, taskProgram} {
		if err := os.RemoveAll(t.input(id, part)); err != nil {
			t.log.Warn("remove an input", "execution", id, "error", err)
		}
	}
}

// sweep removes inputs that no job can need any more, because their URLs have expired.
func (t *transfer) sweep(now time.Time, lifetime time.Duration) {
	entries, _ := os.ReadDir(filepath.Join(t.folder, inputsFolder)) // a folder that cannot be read has nothing to remove
	for _, e := range entries {
		if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > lifetime {
			_ = os.RemoveAll(filepath.Join(t.folder, inputsFolder, e.Name())) // the next sweep tries again
		}
	}
}

// token returns a signed token: 8 bytes with the end of its validity in Unix seconds, and their signature with id and part.
func (t *transfer) token(id, part string, expires time.Time) string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(expires.Unix())) //nolint:gosec // after 1970
	return base64.RawURLEncoding.EncodeToString(append(raw, t.sign(id, part, raw)...))
}

func (t *transfer) sign(id, part string, expires []byte) []byte {
	mac := hmac.New(sha256.New, t.key)
	fmt.Fprintf(mac, "%d %s %d %s ", len(id), id, len(part), part)
	mac.Write(expires)
	return mac.Sum(nil)
}

// valid reports whether token allows to fetch an input, and whether it has expired.
func (t *transfer) valid(id, part, token string, now time.Time) (ok, expired bool) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) != 8+sha256.Size || !hmac.Equal(raw[8:], t.sign(id, part, raw[:8])) {
		return false, false
	}
	end := time.Unix(int64(binary.BigEndian.Uint64(raw)), 0) //nolint:gosec // signed by this program
	return now.Before(end), !now.Before(end)
}

// allowed checks the token of a request, and answers it if the token is not valid.
func (t *transfer) allowed(w http.ResponseWriter, r *http.Request, id, part string) bool {
	ok, expired := t.valid(id, part, r.PathValue("token"), time.Now())
	switch {
	case expired:
		http.Error(w, "the URL has expired", http.StatusGone)
	case !ok:
		http.NotFound(w, r)
	}
	return ok
}

// serveInput sends an input as a tar. Each is sent once: a transfer that broke off can be tried again, one that was whole cannot.
func (t *transfer) serveInput(w http.ResponseWriter, r *http.Request) {
	id, part := r.PathValue("id"), r.PathValue("part")
	if !t.allowed(w, r, id, part) {
		return
	}
	folder := t.input(id, part)
	t.mu.Lock()
	taken := t.busy[folder]
	t.busy[folder] = true
	t.mu.Unlock()
	if taken {
		http.Error(w, "the input is being sent", http.StatusConflict)
		return
	}
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.busy, folder)
	}()
	entries, err := os.ReadDir(folder)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	if _, err := os.Stat(filepath.Join(folder, spentFile)); err == nil {
		http.Error(w, "the input was sent already", http.StatusGone)
		return
	}
	w.Header().Set("Content-Type", "application/x-tar")
	if r.Method == http.MethodHead {
		return
	}
	if err := sendFolder(w, folder, entries); err != nil {
		t.log.Warn("send an input", "execution", id, "error", err)
		panic(http.ErrAbortHandler) // the client sees that the transfer is not whole
	}
	if err := writeSynced(filepath.Join(folder, spentFile), nil); err != nil {
		t.log.Warn("note that an input was sent", "execution", id, "error", err)
		panic(http.ErrAbortHandler)
	}
}

// sendFolder writes the files of a folder as a tar.
func sendFolder(w io.Writer, folder string, entries []os.DirEntry) error {
	out := tar.NewWriter(w)
	send := func(name string) error {
		f, err := os.Open(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // read only
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if err := out.WriteHeader(&tar.Header{Name: name, Size: info.Size(), Mode: 0o600}); err != nil {
			return err
		}
		_, err = io.Copy(out, f)
		return err
	}
	for _, e := range entries {
		if err := send(e.Name()); err != nil {
			return err
		}
	}
	return out.Close()
}

// close ends the listener and what it sends.
func (t *transfer) close() error {
	err := t.server.Close()
	t.served.Wait()
	return err
}

// writeSynced writes a small file, which is on disk then.
func writeSynced(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// copySynced writes what r has to a file. It returns an error of r as it is.
func copySynced(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return executor.Errorf(executor.Internal, "keep the input: %w", err)
	}
	if _, err := io.Copy(f, r); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return executor.Errorf(executor.Internal, "keep the input: %w", err)
	}
	return nil
}

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
