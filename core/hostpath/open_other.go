//go:build !linux

package hostpath

import (
	"errors"
	"os"
)

func openRoot(string) (*os.Root, error) { return nil, errors.ErrUnsupported }
