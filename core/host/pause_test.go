package host_test

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor/plugintest"
	"github.com/python-executor/python-executor/core/host"
)

// The pauses before the first, the second, … start after a crash.
var pausesCases = []struct {
	name   string
	steady time.Duration
	want   []time.Duration
}{
	{"crashes soon after the start: each pause is twice the last", time.Hour, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}},
	{"crashes after a steady time: each is the first", time.Nanosecond, []time.Duration{100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond}},
}

func TestThePauseBeforeARestart(t *testing.T) {
	t.Parallel()
	for _, c := range pausesCases {
		t.Run("plugin "+c.name, func(t *testing.T) {
			t.Parallel()
			log := newNews()
			h, err := host.New(host.Options{Entries: entries(map[string]string{"a": "{}"}), Command: plugintest.Command, RunDir: runDir(t), Log: slog.New(log)})
			if err != nil {
				t.Fatal(err)
			}
			h.SetSteady(c.steady)
			if err := h.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got []time.Duration
			for generation := range c.want {
				log.await(generation + 1)
				kill(t, h.Status()[0].PID)
				got = append(got, <-log.pauses)
			}
			if err := h.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("paused %v, want %v", got, c.want)
			}
		})
		t.Run("frontend "+c.name, func(t *testing.T) {
			t.Parallel()
			log := newNews()
			_, r, err := startDiary(t, diary{}, true, func(o *host.FrontendOptions) {
				o.Steady(c.steady)
				o.Log = slog.New(log)
			})
			if err != nil {
				t.Fatal(err)
			}
			var got []time.Duration
			for range c.want {
				kill(t, entry(t, r, "serves"))
				got = append(got, <-log.pauses)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("paused %v, want %v", got, c.want)
			}
		})
	}
}
