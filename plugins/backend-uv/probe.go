package uvbackend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
	"github.com/python-executor/python-executor/core/runner"
)

const (
	probeTime     = 10 * time.Second
	probeMemory   = 256 << 20
	probeParallel = 4
	// probeSlots is how many slots are asked at once where programs run in a box.
	probeSlots = 2
	// probeCode prints an answer as JSON. It runs with -S, which keeps the code in site-packages out.
	probeCode = `import json,sys,sysconfig
print(json.dumps({"executable":sys.executable,"base":getattr(sys,"_base_executable",sys.executable),"version":"%d.%d.%d"%sys.version_info[:3]+("" if sys.version_info[3]=="final" else sys.version_info[3][0]+str(sys.version_info[4])),"platform":sysconfig.get_platform(),"implementation":sys.implementation.name,"free":"t" in getattr(sys,"abiflags","")}))`
)

// answer is the answer of one candidate, as the cache has it.
type answer struct {
	Executable     string `json:"executable"`
	Base           string `json:"base"`
	Version        string `json:"version"`
	Platform       string `json:"platform"`
	Implementation string `json:"implementation"`
	// Free reports whether the candidate is a free-threaded build. Such a build runs only programs that ask for no version.
	Free bool `json:"free"`
	// Error is the reason why the candidate did not answer. The other fields are empty then.
	Error string `json:"error,omitempty"`
	// transient reports whether the Error may not occur next time. The cache leaves such an answer out.
	transient bool
}

// prober asks candidates for their versions and caches the answers on disk. It runs them under a uid of programs.
type prober struct {
	places places
	// claim claims a uid for the probing processes. nil means the plugin's own uid.
	claim func() (*uidClaim, error)
	// inside asks a candidate where programs run. nil means on the host, which is where shims are always asked.
	inside func(context.Context, candidate) answer
	// owner stands for the uid in the cache's keys: "self", or the range of uids, because all uids of a range get the same answers.
	owner string
	cache string
	log   *slog.Logger
}

// discover returns the interpreters of this machine. It starts a process only for a candidate that is not in the cache.
func (p prober) discover(ctx context.Context) inventory {
	candidates := p.places.candidates()
	answers := p.ask(ctx, candidates)
	inv := inventory{byMinor: map[string]interpreter{}}
	order := map[string]int{}
	bestOnPath := -1
	for n, c := range candidates {
		a := answers[n]
		if a.Error != "" {
			if u := p.explain(c, a); !tooOld(u.Version) {
				inv.unreachable = append(inv.unreachable, u)
			}
			continue
		}
		i, ok := resolve(c, a)
		if !ok {
			continue
		}
		if c.onPath >= 0 && (bestOnPath < 0 || c.onPath < bestOnPath) {
			bestOnPath, inv.fallback = c.onPath, i
		}
		if had, ok := inv.byMinor[i.Minor]; !a.Free && (!ok || (had.Implementation != "cpython" && i.Implementation == "cpython")) {
			inv.byMinor[i.Minor], order[i.Minor] = i, n
		}
	}
	if inv.fallback.Path == "" {
		for _, minor := range inv.minors() {
			inv.fallback = inv.byMinor[minor]
			break
		}
	}
	return inv
}

// tooOld reports whether a version is older than oldestMinor. It is false for an unknown version.
func tooOld(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	return len(parts) > 1 && minorNumber("3."+parts[1]) < oldestMinor
}

// resolve returns the interpreter that gave the answer a, as a real file. It returns false if the interpreter cannot be used.
func resolve(c candidate, a answer) (interpreter, bool) {
	path := c.real
	if c.shim {
		path = a.Executable
		if a.Base != "" {
			path = a.Base
		}
		real, err := filepath.EvalSymlinks(path)
		if err != nil || isScript(real) {
			return interpreter{}, false
		}
		path = real
	}
	parts := strings.SplitN(a.Version, ".", 3)
	if len(parts) < 3 || parts[0] != "3" || minorNumber("3."+parts[1]) < oldestMinor {
		return interpreter{}, false
	}
	return interpreter{Path: path, Version: a.Version, Minor: "3." + parts[1], Platform: a.Platform, Implementation: a.Implementation, reach: installation(path)}, true
}

// explain returns the reason why c cannot be used, and the remedy.
func (p prober) explain(c candidate, a answer) unreachable {
	u := unreachable{Path: c.real, Version: guess(c.real), Why: a.Error, Remedy: "reinstall it, or take it off PATH"}
	if p.claim == nil || p.inside != nil && !c.shim {
		return u
	}
	if dir := closedFolder(filepath.Dir(c.real), anyUID); dir != "" {
		u.Why = fmt.Sprintf("the uids that run programs may not enter %s", dir)
		u.Remedy = fmt.Sprintf("chmod o+x %s, or install this Python below /usr/local or /opt", dir)
	} else if c.shim {
		u.Remedy = "put a python3 that is no shim first on PATH, or install Python below /usr/local or /opt"
	}
	return u
}

// ask returns one answer per candidate. It asks only the candidates that the cache does not have.
func (p prober) ask(ctx context.Context, candidates []candidate) []answer {
	known := map[string]answer{}
	if raw, err := os.ReadFile(p.cache); err == nil {
		if err := json.Unmarshal(raw, &known); err != nil {
			known = map[string]answer{}
		}
	}
	answers := make([]answer, len(candidates))
	stamps := make([]string, len(candidates))
	var wg sync.WaitGroup
	turns := make(chan struct{}, probeParallel)
	if p.inside != nil {
		turns = make(chan struct{}, probeSlots)
	}
	var claimed *uidClaim
	uid := sync.OnceValues(func() (_ *uidClaim, err error) {
		claimed, err = p.uid()
		return claimed, err
	})
	asked := false
	for n, c := range candidates {
		stamps[n] = c.stamp(p.owner)
		if a, ok := known[stamps[n]]; ok {
			answers[n] = a
			continue
		}
		asked = true
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if p.inside != nil && !c.shim {
				answers[n] = p.inside(ctx, c)
				return
			}
			claim, err := uid()
			if err != nil {
				answers[n] = answer{Error: err.Error(), transient: true}
				return
			}
			answers[n] = p.probe(ctx, c, claim.uid)
		})
	}
	wg.Wait()
	if asked {
		if claimed != nil && claimed.lock != nil {
			claimed.release()
		}
		fresh := map[string]answer{}
		for n := range candidates {
			if !answers[n].transient {
				fresh[stamps[n]] = answers[n]
			}
		}
		if err := writeJSON(p.cache, fresh); err != nil {
			p.log.Warn("interpreter cache not written", "file", p.cache, "error", err)
		}
	}
	return answers
}

// uid claims the uid of the probing processes. Without claim it returns uid 0 without a lock, which stands for the plugin's own.
func (p prober) uid() (*uidClaim, error) {
	if p.claim == nil {
		return &uidClaim{}, nil
	}
	return p.claim()
}

// anyUID stands for all uids of programs in a call of closedFolder. It owns no folder, so it may enter only folders that every uid
// may enter.
const anyUID = -1

// probe runs one candidate under uid, or under the plugin's own uid for 0.
func (p prober) probe(ctx context.Context, c candidate, uid int) answer {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTime, fmt.Errorf("no answer within %s", probeTime))
	defer cancel()
	cmd := exec.CommandContext(ctx, c.real, "-I", "-S", "-c", probeCode)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + p.places.path, "LANG=C.UTF-8"}
	if uid == 0 {
		cmd.Env = append(cmd.Env, "HOME="+p.places.home)
	}
	cmd.SysProcAttr = childAttr(uid)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out, errs boundedBuffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(errs.String())
		// A candidate that was killed, or could not be started for another reason than its permissions, may answer next time.
		exit, exited := errors.AsType[*exec.ExitError](err)
		a := answer{transient: (!exited || !exit.Exited()) && !errors.Is(err, fs.ErrPermission)}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		a.Error = err.Error()
		if said != "" {
			a.Error = requirements.Shorten(fmt.Sprintf("%s (%v)", lastLine(said), err), 300)
		}
		return a
	}
	return parseAnswer(out.Bytes())
}

// parseAnswer reads what probeCode has printed.
func parseAnswer(out []byte) answer {
	var a answer
	if err := json.Unmarshal(bytes.TrimSpace(out), &a); err != nil || a.Version == "" {
		return answer{Error: "does not print its version"}
	}
	return a
}

// askInside asks a candidate in a slot, where programs run. Only there the answer tells whether they can use it.
func (b *Backend) askInside(ctx context.Context, c candidate) answer {
	s, _, err := b.takeSlot(ctx, false, "")
	if err != nil {
		return answer{Error: err.Error(), transient: true}
	}
	defer b.slots.put(s)
	var out, errs boundedBuffer
	result, err := s.conn.Run(ctx, runner.Start{
		ExecutionID: "probe", Command: []string{c.real, "-I", "-S", "-c", probeCode}, Path: defaultPath, Reach: installation(c.real),
		Env:    map[string]string{"HOME": "/tmp"}, // it is no program of anybody's: tests look for those by their home
		Limits: executor.Limits{Timeout: probeTime, MemoryBytes: probeMemory, DiskBytes: 1 << 20, PIDs: 16, CPUShares: buildShares, OutputBytes: maxKept},
	}, runner.RunInput{}, backend.Output{Stdout: &out, Stderr: &errs})
	switch {
	case err != nil:
		_ = s.conn.Close() // its state is unknown
		return answer{Error: err.Error(), transient: true}
	case result.Status == executor.StatusSucceeded:
		return parseAnswer(out.Bytes())
	}
	why := string(result.Status)
	if result.Failure != nil {
		why = result.Failure.Message
	}
	if said := strings.TrimSpace(errs.String()); said != "" {
		why = requirements.Shorten(fmt.Sprintf("%s (%s)", lastLine(said), why), 300)
	}
	return answer{Error: why, transient: result.Status != executor.StatusFailed}
}

// childAttr returns the attributes of a process with its own process group. The kernel kills the process when the plugin ends. It
// runs under uid, or under the plugin's own uid for 0.
func childAttr(uid int) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if uid != 0 {
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid), Groups: []uint32{}}
	}
	return attr
}

func lastLine(s string) string { return s[strings.LastIndexByte(s, '\n')+1:] }

// boundedBuffer keeps the first 64 KiB and discards the rest without an error.
type boundedBuffer struct{ bytes.Buffer }

const maxKept = 64 << 10

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if room := maxKept - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// writeJSON replaces the file path atomically.
func writeJSON(path string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*.json")
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err == nil {
		err = f.Chmod(fs.FileMode(0o644))
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
