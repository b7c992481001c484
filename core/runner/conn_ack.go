package runner

import "github.com/python-executor/python-executor/core/executor"

// ack tells the runner how far the output is in the log, now and then: what is not acknowledged it keeps.
func (f *follower) ack(o executor.Output) error {
	i := 0
	if o.Stream == executor.Stderr {
		i = 1
	}
	f.acked.streams[i] = o.Offset + int64(len(o.Data))
	f.unacked += int64(len(o.Data))
	if f.unacked < outputWindow/4 {
		return nil
	}
	f.sendAck()
	return nil
}

// ackEvent tells the runner that one more of the frames that it sends by outbox.event is in the log.
func (f *follower) ackEvent() {
	f.acked.events++
	f.sendAck()
}

func (f *follower) sendAck() {
	f.unacked = 0
	_ = f.conn.out.frame(frameAck, f.acked.payload()...) // a broken connection shows in the reader
}
