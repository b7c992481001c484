// Package awaittest waits in tests: for a condition, a value, the end of a process, a limit that comes.
//
// A test must stay right when any goroutine, thread or process stops for a minute at any point. So no wait has a number of
// its own. Each one ends when what it waits for is there, or after Bound, which only a hang reaches. The failure then shows
// what the machine was doing: its load and pressure, the processes below the test, and the stacks of all goroutines.
//
//	awaittest.Until(t, "the slot is idle", func() bool { return b.idle() == 1 })
//	event := awaittest.Recv(t, "the first output", events)
//	awaittest.Never(t, "a second start", func() bool { return starts.Load() > 1 }, func() { server.Restart() })
//	result := awaittest.Ladder(t, time.Second, func(limit time.Duration) (executor.Result, bool) {
//		r := run(limit)
//		return r, r.Started // a run that ended before its program was up has shown nothing
//	})
//
// A limit that must not come in a test is Forever. The same functions work in a bubble of testing/synctest, where Bound is
// virtual. Lint refuses time.Sleep, time.After and their kin in tests outside this package and such bubbles (docs/testing.md).
package awaittest
