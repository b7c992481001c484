//go:build !linux

package runner

import "os"

func (f *frameWriter) carriesFiles() bool { return false }

func (f *frameWriter) sendFile(frameType, *os.File) {}
