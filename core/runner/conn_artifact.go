package runner

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// artifact gives one file to sink. It reads the file from the frames that follow.
func (f *follower) artifact(raw []byte, sink executor.Sink, wanted bool) error {
	var h protocol.ArtifactHeader
	if err := json.Unmarshal(raw, &h); err != nil {
		return fmt.Errorf("%w: artifact: %w", protocol.ErrFrame, err)
	}
	body := &artifactReader{follower: f, left: h.Size}
	var err error
	if wanted {
		err = sink.Artifact(&tar.Header{
			Typeflag: tar.TypeReg, Name: h.Path, Size: h.Size, Mode: h.Mode, ModTime: h.ModTime,
		}, body)
	}
	if _, drainErr := io.Copy(io.Discard, body); drainErr != nil {
		return errors.Join(drainErr, err)
	}
	if wanted && err == nil {
		f.artifacts = append(f.artifacts, executor.Artifact{Path: h.Path, SizeBytes: h.Size})
	}
	return err
}

// artifactReader reads the ArtifactData frames of one file.
type artifactReader struct {
	follower *follower
	left     int64
	data     []byte
	used     int
	err      error
}

// Read implements io.Reader.
func (a *artifactReader) Read(p []byte) (int, error) {
	for len(a.data) == 0 {
		if a.err != nil {
			return 0, a.err
		}
		a.err = a.fill()
	}
	n := copy(p, a.data)
	a.data = a.data[n:]
	return n, nil
}

func (a *artifactReader) fill() error {
	r, err := a.follower.next()
	if err != nil {
		return err
	}
	switch r.t {
	case protocol.FrameArtifactData:
		if int64(len(r.data)) > a.left {
			return fmt.Errorf("%w: an artifact longer than announced", protocol.ErrFrame)
		}
		a.left -= int64(len(r.data))
		a.data = r.data
		a.used += len(r.data)
		if a.used >= protocol.ArtifactWindow/4 {
			_ = a.follower.conn.out.Send(protocol.FrameCredit, protocol.CreditPayload(protocol.ChannelArtifact, a.used)...)
			a.used = 0
		}
		return nil
	case protocol.FrameArtifactEnd:
		if a.left > 0 {
			return fmt.Errorf("%w: an artifact shorter than announced", protocol.ErrFrame)
		}
		if a.used > 0 {
			_ = a.follower.conn.out.Send(protocol.FrameCredit, protocol.CreditPayload(protocol.ChannelArtifact, a.used)...)
			a.used = 0
		}
		return io.EOF
	default:
		return fmt.Errorf("%w: frame type %d within an artifact", protocol.ErrFrame, r.t)
	}
}
