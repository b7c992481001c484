package runner

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/python-executor/python-executor/core/executor"
)

// artifact hands one file to sink, reading it from the frames that follow.
func (f *follower) artifact(raw []byte, sink executor.Sink, wanted bool) error {
	var h artifactHeader
	if err := json.Unmarshal(raw, &h); err != nil {
		return fmt.Errorf("%w: artifact: %w", errFrame, err)
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

// artifactReader reads the data frames of one file.
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
	case frameArtifactData:
		if int64(len(r.data)) > a.left {
			return fmt.Errorf("%w: an artifact longer than announced", errFrame)
		}
		a.left -= int64(len(r.data))
		a.data = r.data
		a.used += len(r.data)
		if a.used >= artifactWindow/4 {
			_ = a.follower.conn.out.frame(frameCredit, creditPayload(channelArtifact, a.used)...)
			a.used = 0
		}
		return nil
	case frameArtifactEnd:
		if a.left > 0 {
			return fmt.Errorf("%w: an artifact shorter than announced", errFrame)
		}
		if a.used > 0 {
			_ = a.follower.conn.out.frame(frameCredit, creditPayload(channelArtifact, a.used)...)
			a.used = 0
		}
		return io.EOF
	default:
		return fmt.Errorf("%w: frame type %d within an artifact", errFrame, r.t)
	}
}
