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

	"github.com/python-executor/python-executor/core/requirements"
)

const (
	probeTime     = 10 * time.Second
	probeParallel = 4
	// probeCode asks for everything at once. -S keeps site-packages, and so other people's code, out of it.
	probeCode = `import json,sys,sysconfig
print(json.dumps({"executable":sys.executable,"base":getattr(sys,"_base_executable",sys.executable),"version":"%d.%d.%d"%sys.version_info[:3]+("" if sys.version_info[3]=="final" else sys.version_info[3][0]+str(sys.version_info[4])),"platform":sysconfig.get_platform(),"implementation":sys.implementation.name,"free":"t" in getattr(sys,"abiflags","")}))`
)

// answer is what one candidate said, as it stands in the cache.
type answer struct {
	Executable     string `json:"executable"`
	Base           string `json:"base"`
	Version        string `json:"version"`
	Platform       string `json:"platform"`
	Implementation string `json:"implementation"`
	// Free is a free-threaded build, which runs only what asks for no version.
	Free bool `json:"free"`
	// Error says why it could not be asked; the rest is empty then.
	Error string `json:"error,omitempty"`
	// passing: the Error says nothing about the next time, so it is not remembered.
	passing bool
}

// prober asks candidates, as the uid that will run programs, and remembers their answers on disk.
type prober struct {
	places places
	// claim gives the uid of the probing processes, for as long as they run; nil: our own.
	claim func() (*uidClaim, error)
	// owner names who asks in the cache's keys: every uid of a range gets the same answers.
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

// tooOld reports whether a version, as far as it is known, is one that would not be used anyway.
func tooOld(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	return len(parts) > 1 && minorNumber("3."+parts[1]) < oldestMinor
}

// resolve turns an answer into an interpreter that is a real file.
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
	return interpreter{Path: path, Version: a.Version, Minor: "3." + parts[1], Platform: a.Platform, Implementation: a.Implementation}, true
}

// explain names the reason and the remedy.
func (p prober) explain(c candidate, a answer) unreachable {
	u := unreachable{Path: c.real, Version: guess(c.real), Why: a.Error, Remedy: "reinstall it, or take it off PATH"}
	if p.claim == nil {
		return u
	}
	if dir := passable(filepath.Dir(c.real), nobodySpecial); dir != "" {
		u.Why = fmt.Sprintf("%s may not be entered by the uids that run programs", dir)
		u.Remedy = fmt.Sprintf("chmod o+x %s, or install this Python below /usr/local or /opt", dir)
	} else if c.shim {
		u.Remedy = "put a python3 that is no shim first on PATH, or install Python below /usr/local or /opt"
	}
	return u
}

// ask returns one answer per candidate, from the cache where it has one.
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
	places := make(chan struct{}, probeParallel)
	uid := sync.OnceValues(p.uid)
	asked := false
	for n, c := range candidates {
		stamps[n] = c.stamp(p.owner)
		if a, ok := known[stamps[n]]; ok {
			answers[n] = a
			continue
		}
		asked = true
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			claim, err := uid()
			if err != nil {
				answers[n] = answer{Error: err.Error(), passing: true}
				return
			}
			answers[n] = p.probe(ctx, c, claim.uid)
		})
	}
	wg.Wait()
	if asked {
		if claim, err := uid(); err == nil && claim.lock != nil {
			claim.release()
		}
		fresh := map[string]answer{}
		for n := range candidates {
			if !answers[n].passing {
				fresh[stamps[n]] = answers[n]
			}
		}
		if err := writeJSON(p.cache, fresh); err != nil {
			p.log.Warn("interpreter cache not written", "file", p.cache, "error", err)
		}
	}
	return answers
}

// uid is who asks.
func (p prober) uid() (*uidClaim, error) {
	if p.claim == nil {
		return &uidClaim{}, nil
	}
	return p.claim()
}

// nobodySpecial owns no folder: what it may enter, every uid of a range may.
const nobodySpecial = -1

// probe runs one candidate as uid, or as ourselves for 0.
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
		// A candidate that was killed, or could not be started for lack of something, may answer next time.
		exit, exited := errors.AsType[*exec.ExitError](err)
		a := answer{passing: (!exited || !exit.Exited()) && !errors.Is(err, fs.ErrPermission)}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		a.Error = err.Error()
		if said != "" {
			a.Error = requirements.Shorten(fmt.Sprintf("%s (%v)", lastLine(said), err), 300)
		}
		return a
	}
	var a answer
	if err := json.Unmarshal(bytes.TrimSpace(out.Bytes()), &a); err != nil || a.Version == "" {
		return answer{Error: "gives no sensible answer when asked for its version"}
	}
	return a
}

// childAttr puts a process that we start for ourselves into its own group, lets it die with us, and gives it uid.
func childAttr(uid int) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if uid != 0 {
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid), Groups: []uint32{}}
	}
	return attr
}

func lastLine(s string) string { return s[strings.LastIndexByte(s, '\n')+1:] }

// boundedBuffer keeps the first 64 KiB and counts the rest as written.
type boundedBuffer struct{ bytes.Buffer }

const maxKept = 64 << 10

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if room := maxKept - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// writeJSON replaces path in one step.
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
