package config

import (
	"fmt"
	"maps"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

var (
	nameForm   = form(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	moduleForm = form(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)
	sha256Form = form(`^[0-9a-f]{64}$`)
)

// form returns a function that reports whether a text has the form of expression. The first call compiles it, because each process pays for
// what its start compiles.
func form(expression string) func(text string) bool {
	compiled := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
	return func(text string) bool { return compiled().MatchString(text) }
}

// Validate reports every problem of c, not only the first. It returns nil or an *executor.Error of code invalid. The Fields
// of the error are the problems by path, in the order of the file. Its message has one problem per line
// ("limits.max.memory_mb: must be > 0 (got -1)"). Validate depends only on c, and does not check the sections of plugins.
func (c Config) Validate() error {
	var p executor.Problems
	c.HTTP.validate(&p)
	if c.DataDir == "" {
		p.Add("data_dir", "must be set")
	}
	c.validateBackends(&p)
	atLeast(&p, "engine.max_concurrent", c.Engine.MaxConcurrent, 1)
	atLeast(&p, "engine.max_queued", c.Engine.MaxQueued, 0)
	atLeast(&p, "engine.max_per_owner", c.Engine.MaxPerOwner, 0)
	atLeast(&p, "engine.max_running_per_owner", c.Engine.MaxRunningPerOwner, 0)
	notNegative(&p, "engine.max_artifact_bytes", float64(c.Engine.MaxArtifactBytes))
	notNegative(&p, "engine.max_spool_bytes", float64(c.Engine.MaxSpoolBytes))
	notNegative(&p, "engine.max_spool_bytes_per_owner", float64(c.Engine.MaxSpoolBytesPerOwner))
	upTo(&p, "engine.drain_timeout_seconds", c.Engine.DrainTimeoutSeconds, maxSeconds)
	c.Limits.validate(&p)
	upTo(&p, "retention.max_age_seconds", c.Retention.MaxAgeSeconds, maxSeconds)
	atLeast(&p, "retention.max_executions", c.Retention.MaxExecutions, 0)
	notNegative(&p, "retention.max_bytes", float64(c.Retention.MaxBytes))
	c.Sessions.validate(&p)
	c.MCP.validate(&p, c.HTTP)
	c.Scripts.validate(&p)
	c.Worker.validate(&p)
	return p.Err(executor.Invalid, "", "\n")
}

func (h HTTP) validate(p *executor.Problems) {
	switch host, ok := hostOf(h.Bind); {
	case !ok:
		p.Add("http.bind", "must be "+anAddress+" (got %q)", h.Bind)
	case !Loopback(host) && len(h.Tokens) == 0 && !h.AllowUnauthenticated:
		p.Add("http.bind", "must be a loopback address, unless http.tokens or http.allow_unauthenticated (--allow-unauthenticated) is set (got %q)", h.Bind)
	}
	if h.PprofBind != "" {
		switch host, ok := hostOf(h.PprofBind); {
		case !ok:
			p.Add("http.pprof_bind", "must be "+anAddress+", or empty for no profiles (got %q)", h.PprofBind)
		case !Loopback(host):
			p.Add("http.pprof_bind", "must be a loopback address (got %q)", h.PprofBind)
		}
	}
	if h.MaxBodyBytes <= 0 {
		p.Add("http.max_body_bytes", "must be > 0 (got %d)", h.MaxBodyBytes)
	}
	if h.MaxBufferedBytes < minBuffered {
		p.Add("http.max_buffered_bytes", "must be at least %d (got %d)", minBuffered, h.MaxBufferedBytes)
	}
	seen := map[string]int{}
	for i, t := range h.Tokens {
		at := fmt.Sprintf("http.tokens[%d]", i)
		if t.Owner == "" {
			p.Add(at+".owner", "must be set")
		}
		if !sha256Form(t.SHA256) {
			p.Add(at+".sha256", "must be 64 lower-case hex digits, the SHA-256 of the token")
		} else if first, twice := seen[t.SHA256]; twice {
			p.Add(at+".sha256", "duplicate of http.tokens[%d].sha256", first)
		} else {
			seen[t.SHA256] = i
		}
		known := func(s string) bool { return slices.Contains(executor.Scopes(), executor.Scope(s)) }
		each(p, at+".scopes", t.Scopes, known, "one of exec, read, admin, scripts, trusted")
	}
}

const anAddress = "host:port with a port from 0 to 65535"

// hostOf returns the host of a listening address. ok reports whether the address has the form host:port, with a port that exists.
func hostOf(address string) (host string, ok bool) {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return host, err == nil
}

// Loopback reports whether host, a name or an address without port, can be reached from this machine only. An empty host
// means all addresses of the machine, so it is not loopback.
func Loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func (c Config) validateBackends(p *executor.Problems) {
	names := slices.Sorted(maps.Keys(c.Backends))
	if len(names) == 0 {
		p.Add("backends", "must have at least one entry")
	} else if _, ok := c.Backends[c.Backend]; !ok {
		p.Add("backend", "must name an entry of backends: %s (got %q)", strings.Join(names, ", "), c.Backend)
	}
	for _, name := range names {
		b, at := c.Backends[name], "backends."+name
		if !nameForm(name) {
			p.Add(at, "the name must be lower-case letters, digits, - and _ (at most 63)")
		}
		if (b.Path == "") != (b.SHA256 == "") {
			p.Add(at, "must have both path and sha256, or neither")
		}
		if b.SHA256 != "" && !sha256Form(b.SHA256) {
			p.Add(at+".sha256", "must be 64 lower-case hex digits, the SHA-256 of the file")
		}
	}
}

func (l LimitRange) validate(p *executor.Problems) {
	l.Default.validate(p, "limits.default")
	l.Max.validate(p, "limits.max")
	upTo(p, "limits.default.cpu_seconds", l.Default.CPUSeconds, maxSeconds)
	within(p, "limits.max.cpu_seconds", l.Max.CPUSeconds, maxSeconds)
	for _, pair := range []struct {
		key      string
		def, max float64
	}{
		{"timeout_seconds", l.Default.TimeoutSeconds, l.Max.TimeoutSeconds},
		{"cpu_seconds", l.Default.CPUSeconds, l.Max.CPUSeconds},
		{"memory_mb", float64(l.Default.MemoryMB), float64(l.Max.MemoryMB)},
		{"disk_mb", float64(l.Default.DiskMB), float64(l.Max.DiskMB)},
		{"cpu_shares", float64(l.Default.CPUShares), float64(l.Max.CPUShares)},
		{"pids", float64(l.Default.PIDs), float64(l.Max.PIDs)},
		{"output_bytes", float64(l.Default.OutputBytes), float64(l.Max.OutputBytes)},
		{"kill_grace_seconds", l.Default.KillGraceSeconds, l.Max.KillGraceSeconds},
	} {
		if pair.max > 0 && pair.def > pair.max {
			p.Add("limits.default."+pair.key, "must be <= limits.max.%s, %s (got %s)", pair.key, number(pair.max), number(pair.def))
		}
	}
}

// minBuffered is the size of the largest JSON body that the HTTP API accepts.
const minBuffered = 32 << 20

// The largest numbers that do not overflow in the contract's units.
const (
	maxSeconds = 1e9
	maxMB      = 1 << 40
)

// maxPIDs is the number of processes that a Linux kernel can have.
const maxPIDs = 1 << 22

func (l Limits) validate(p *executor.Problems, at string) {
	within(p, at+".timeout_seconds", l.TimeoutSeconds, maxSeconds)
	within(p, at+".memory_mb", float64(l.MemoryMB), maxMB)
	within(p, at+".disk_mb", float64(l.DiskMB), maxMB)
	if l.CPUShares < 2 || l.CPUShares > 262144 {
		p.Add(at+".cpu_shares", "must be between 2 and 262144 (got %d)", l.CPUShares)
	}
	within(p, at+".pids", float64(l.PIDs), maxPIDs)
	within(p, at+".output_bytes", float64(l.OutputBytes), 1<<60)
	within(p, at+".kill_grace_seconds", l.KillGraceSeconds, maxSeconds)
}

func (s Sessions) validate(p *executor.Problems) {
	atLeast(p, "sessions.max", s.Max, 0)
	atLeast(p, "sessions.max_per_owner", s.MaxPerOwner, 0)
	atLeast(p, "sessions.max_waiting", s.MaxWaiting, 0)
	within(p, "sessions.idle_timeout_seconds", s.IdleTimeoutSeconds, maxSeconds)
	upTo(p, "sessions.evict_idle_seconds", s.EvictIdleSeconds, maxSeconds)
	within(p, "sessions.max_life_seconds", s.MaxLifeSeconds, maxSeconds)
	within(p, "sessions.max_file_bytes", float64(s.MaxFileBytes), 1<<60)
	upTo(p, "sessions.keep_closed_seconds", s.KeepClosedSeconds, maxSeconds)
	each(p, "sessions.preload", s.Preload, moduleForm, "the name of a Python module, like numpy or os.path")
}

// each records the entries of a list that are not ok; what says what they must be.
func each(p *executor.Problems, field string, list []string, ok func(string) bool, what string) {
	for i, entry := range list {
		if !ok(entry) {
			p.Add(fmt.Sprintf("%s[%d]", field, i), "must be %s (got %q)", what, entry)
		}
	}
}

func atLeast(p *executor.Problems, field string, got, min int) {
	if got < min {
		p.Add(field, "must be >= %d (got %d)", min, got)
	}
}

func notNegative(p *executor.Problems, field string, got float64) {
	if got < 0 || math.IsNaN(got) {
		p.Add(field, "must be >= 0 (got %s)", number(got))
	}
}

func within(p *executor.Problems, field string, got, max float64) {
	switch {
	case got <= 0 || math.IsNaN(got):
		p.Add(field, "must be > 0 (got %s)", number(got))
	case got > max:
		p.Add(field, "must be <= %s (got %s)", number(max), number(got))
	}
}

func upTo(p *executor.Problems, field string, got, max float64) {
	if notNegative(p, field, got); got > max {
		p.Add(field, "must be <= %s (got %s)", number(max), number(got))
	}
}

// number formats f without an exponent: 99999999, not 9.9999999e+07.
func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
