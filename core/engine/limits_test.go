package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

func TestADefaultAboveItsMaximumIsTheMaximum(t *testing.T) {
	t.Parallel()
	minimum := config.Limits{TimeoutSeconds: 1, CPUSeconds: 2, MemoryMB: 2, DiskMB: 3, CPUShares: 4, PIDs: 5, OutputBytes: 6, KillGraceSeconds: 0.5}
	want := executor.Limits{
		Timeout: time.Second, MemoryBytes: 2 << 20, DiskBytes: 3 << 20, CPUShares: 4, PIDs: 5, OutputBytes: 6, KillGrace: 500 * time.Millisecond,
	}
	defaults, maxima := limitRange(config.LimitRange{Max: minimum})
	most := want
	most.CPUTime = 2 * time.Second
	if defaults != want || maxima != most {
		t.Errorf("the defaults are %+v, the maxima %+v, want %+v", defaults, maxima, want)
	}
	unlimited := config.LimitRange{Default: config.Limits{OutputBytes: executor.Unlimited}}
	if defaults, maxima := limitRange(unlimited); defaults.OutputBytes != maxima.OutputBytes || maxima.OutputBytes <= 0 {
		t.Errorf("below a maximum of %d the default output is %d", maxima.OutputBytes, defaults.OutputBytes)
	}
}

func TestEveryLimitHasItsMaximum(t *testing.T) {
	t.Parallel()
	with := func(r config.LimitRange) *Engine {
		e, limits := &Engine{}, &settings{}
		limits.defaultLimits, limits.maxLimits = limitRange(r)
		e.settings.Store(limits)
		return e
	}
	e, boundless := with(config.LimitRange{}), with(config.LimitRange{Max: config.Limits{OutputBytes: executor.Unlimited}})
	for _, test := range []struct {
		engine *Engine
		asked  executor.Limits
		field  string
	}{
		{e, executor.Limits{}, ""},
		{e, executor.Limits{CPUTime: 86400 * time.Second}, ""},
		{e, executor.Limits{CPUTime: 86401 * time.Second}, "config.cpu_seconds"},
		{e, executor.Limits{Timeout: executor.TimeoutMaximum}, ""},
		{e, executor.Limits{Timeout: 86400 * time.Second}, ""},
		{e, executor.Limits{Timeout: 86401 * time.Second}, "config.timeout_seconds"},
		{e, executor.Limits{Timeout: -2}, "config.timeout_seconds"},
		{e, executor.Limits{MemoryBytes: 64 << 30}, ""},
		{e, executor.Limits{MemoryBytes: 64<<30 + 1}, "config.memory_mb"},
		{e, executor.Limits{MemoryBytes: -1}, "config.memory_mb"},
		{e, executor.Limits{DiskBytes: 64 << 30}, ""},
		{e, executor.Limits{DiskBytes: 64<<30 + 1}, "config.disk_mb"},
		{e, executor.Limits{PIDs: 4096}, ""},
		{e, executor.Limits{PIDs: 4097}, "config.pids"},
		{e, executor.Limits{KillGrace: time.Minute}, ""},
		{e, executor.Limits{KillGrace: time.Minute + 1}, "config.kill_grace_seconds"},
		{e, executor.Limits{CPUShares: 2}, ""},
		{e, executor.Limits{CPUShares: 1}, "config.cpu_shares"},
		{e, executor.Limits{CPUShares: 262144}, ""},
		{e, executor.Limits{CPUShares: 262145}, "config.cpu_shares"},
		{e, executor.Limits{OutputBytes: 1 << 30}, ""},
		{e, executor.Limits{OutputBytes: 1<<30 + 1}, "config.output_bytes"},
		{e, executor.Limits{OutputBytes: executor.Unlimited}, "config.output_bytes"},
		{boundless, executor.Limits{OutputBytes: executor.Unlimited}, ""},
		{boundless, executor.Limits{OutputBytes: 1 << 40}, ""},
		{boundless, executor.Limits{OutputBytes: executor.Unlimited - 1}, "config.output_bytes"},
	} {
		var p executor.Problems
		test.engine.resolveLimits(test.asked, &p)
		got := ""
		if len(p) > 0 {
			got = p[0].Field
		}
		if got != test.field || len(p) > 1 {
			t.Errorf("%+v: problems %s, want one with %q", test.asked, fmt.Sprint(p), test.field)
		}
	}
}

// A limit of CPU time alone leaves a program the time to reach it.
func TestTheDefaultOfTheTimeoutGrowsWithTheCPUTime(t *testing.T) {
	t.Parallel()
	e, limits := &Engine{}, &settings{}
	limits.defaultLimits, limits.maxLimits = limitRange(config.LimitRange{Max: config.Limits{TimeoutSeconds: 5000}})
	e.settings.Store(limits)
	const s = time.Second
	for asked, want := range map[executor.Limits]time.Duration{
		{CPUTime: 2 * s}: 300 * s, {CPUTime: 40 * s}: 400 * s, {CPUTime: 4000 * s}: 5000 * s, {CPUTime: 40 * s, Timeout: s}: s,
	} {
		var none executor.Problems
		inSession := e.limitsInSession(executor.Limits{Timeout: 300 * s}, asked, e.resolveLimits(asked, &none))
		if got := e.resolveLimits(asked, &none); got.Timeout != want || inSession.Timeout != want || inSession.CPUTime != asked.CPUTime {
			t.Errorf("%+v: %s, in a session %+v, want %s", asked, got.Timeout, inSession, want)
		}
	}
}

// A backend has the grace and Deadlines.Stop to end a program at its timeout, before the Engine does.
func TestHowLongAProgramMayRunBeforeTheEngineStopsIt(t *testing.T) {
	t.Parallel()
	e := &Engine{deadlines: Deadlines{}.withDefaults()}
	l := executor.Limits{Timeout: time.Hour, KillGrace: 5 * time.Second}
	if got, want := e.runAllowance(l, false), time.Hour+25*time.Second; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := e.runAllowance(l, true), time.Hour+10*time.Minute+25*time.Second; got != want {
		t.Errorf("with outputs %s, want %s", got, want)
	}
}

func TestALimitThatABackendCannotEnforceNamesTheHost(t *testing.T) {
	t.Parallel()
	for field, spec := range map[string]executor.Spec{
		"config.memory_mb": {Code: "x", Limits: executor.Limits{MemoryBytes: 1 << 30}},
		"pre_commands":     {Code: "x", PreCommands: []string{"true"}},
	} {
		var invalid, missing executor.Problems
		capable(spec, executor.Info{Name: "bare", Capabilities: executor.Capabilities{Languages: []executor.Language{executor.LanguagePython}}}, &invalid, &missing)
		err := missing.Err(executor.Unimplemented, "submit", "; ")
		wantCode(t, err, executor.Unimplemented, field)
		if host := strings.Contains(err.Error(), "doctor"); host != strings.HasPrefix(field, "config.") {
			t.Errorf("error %v", err)
		}
	}
}
