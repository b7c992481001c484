//go:build linux

package output

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// writes keeps every Write apart, as the frames in it.
type writes [][]string

func (w *writes) Write(p []byte) (int, error) {
	var list []string
	for r := protocol.NewReader(bytes.NewReader(p)); ; {
		ft, n, err := r.Header()
		if err != nil {
			break
		}
		payload, err := r.Payload(n)
		if err != nil {
			return 0, err
		}
		if ft != protocol.FrameOutput {
			list = append(list, fmt.Sprintf("%d %s", ft, payload))
			continue
		}
		o, err := protocol.ParseOutput(payload)
		if err != nil {
			return 0, err
		}
		list = append(list, fmt.Sprintf("%s@%d %d %.8s", o.Stream, o.Offset, len(o.Data), o.Data))
	}
	*w = append(*w, list)
	return len(p), nil
}

func TestSmallOutputWaitsForMoreAndKeepsItsOrder(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte{'b'}, holdBytes+1)
	type step func(b *Outbox)
	put := func(s executor.Stream, text string) step {
		return func(b *Outbox) {
			b.Put(s, append(make([]byte, protocol.HeaderBytes+protocol.OutputHeaderBytes), text...))
		}
	}
	answer := func(b *Outbox) { _ = b.Last(protocol.FrameExited, []byte("{}")) }
	event := func(b *Outbox) { b.Event(protocol.FrameDisplay, []byte("{}")) }
	begin := func(b *Outbox) { _ = b.First(protocol.FrameStarted, []byte("{}")) }
	exited, display, started := fmt.Sprintf("%d {}", protocol.FrameExited), fmt.Sprintf("%d {}", protocol.FrameDisplay), fmt.Sprintf("%d {}", protocol.FrameStarted)
	for name, c := range map[string]struct {
		steps []step
		want  writes
	}{
		"the last output travels with the Result":   {[]step{put(executor.Stdout, "a"), put(executor.Stdout, "b"), answer}, writes{{"stdout@0 2 ab", exited}}},
		"nothing held, nothing sent but the Result": {[]step{answer}, writes{{exited}}},
		"the other stream sends what is held first": {
			[]step{put(executor.Stdout, "a"), put(executor.Stderr, "b"), put(executor.Stdout, "c"), answer},
			writes{{"stdout@0 1 a"}, {"stderr@0 1 b"}, {"stdout@1 1 c", exited}},
		},
		"an event sends what is held first": {[]step{put(executor.Stdout, "a"), event, answer}, writes{{"stdout@0 1 a"}, {display}, {exited}}},
		"much is sent at once, behind what is held": {
			[]step{put(executor.Stdout, "a"), put(executor.Stdout, string(big)), answer},
			writes{{"stdout@0 1 a"}, {fmt.Sprintf("stdout@1 %d bbbbbbbb", len(big))}, {exited}},
		},
		"no more is held than holdBytes": {
			[]step{put(executor.Stdout, string(big[1:])), put(executor.Stdout, "c"), answer},
			writes{{fmt.Sprintf("stdout@0 %d bbbbbbbb", holdBytes)}, {fmt.Sprintf("stdout@%d 1 c", holdBytes), exited}},
		},
		"what goes first goes with what is held": {
			[]step{begin, put(executor.Stdout, "a"), put(executor.Stdout, "b"), answer}, writes{{started, "stdout@0 2 ab", exited}},
		},
		"what goes first goes before what is sent at once": {
			[]step{begin, put(executor.Stdout, string(big)), answer},
			writes{{started}, {fmt.Sprintf("stdout@0 %d bbbbbbbb", len(big))}, {exited}},
		},
		"what goes first goes before an event": {[]step{begin, event, answer}, writes{{started}, {display}, {exited}}},
		"what goes first does not wait longer": {[]step{begin, (*Outbox).Expire, put(executor.Stderr, "a"), answer}, writes{{started}, {"stderr@0 1 a", exited}}},
		"a Result that is too long comes behind what is held": {[]step{put(executor.Stdout, "a"), func(b *Outbox) {
			if b.Last(protocol.FrameExited, make([]byte, protocol.MaxControl+1)) == nil {
				t.Error("a Result that is too long was taken")
			}
		}}, writes{{"stdout@0 1 a"}}},
		"what goes first is not too long": {[]step{func(b *Outbox) {
			if b.First(protocol.FrameStarted, make([]byte, protocol.MaxControl+1)) == nil {
				t.Error("a start that is too long was taken")
			}
		}, answer}, writes{{exited}}},
		"nothing but first and last":          {[]step{begin, answer}, writes{{started, exited}}},
		"what has waited long enough is sent": {[]step{put(executor.Stdout, "a"), (*Outbox).Expire, answer}, writes{{"stdout@0 1 a"}, {exited}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got writes
			b := NewOutbox(protocol.NewWriter(&got), nil)
			for _, s := range c.steps {
				b.sending.Lock()
				if b.timer != nil {
					b.timer.Stop() // the steps alone say when
				}
				b.sending.Unlock()
				s(b)
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("written: %q, want %q", got, c.want)
			}
		})
	}
}

func TestOutputBehindTheStartWaitsAsLongAsTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got writes
		b := NewOutbox(protocol.NewWriter(&got), nil)
		must(t, b.First(protocol.FrameStarted, []byte("{}")))
		b.Put(executor.Stdout, outputOf(1))
		sentAfter := func(d time.Duration) writes {
			time.Sleep(d)
			synctest.Wait()
			b.sending.Lock()
			defer b.sending.Unlock()
			return got
		}
		if early := sentAfter(startTime - 1); len(early) > 0 {
			t.Errorf("sent early: %q", early)
		}
		if all := sentAfter(1); len(all) != 1 || len(all[0]) != 2 {
			t.Errorf("sent: %q", all)
		}
	})
}
