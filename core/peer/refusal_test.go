//go:build linux

package peer

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheRefusalsOfAUIDAreLoggedOncePerMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g := New(programs, slog.New(slog.NewTextHandler(&log, nil)))
		for minute := 1; minute < 4; minute++ {
			for range 10 {
				g.refusal(60601, &net.TCPAddr{}, nil)
			}
			if n := strings.Count(log.String(), "peer_uid=60601"); n != minute {
				t.Errorf("minute %d: %d lines", minute, n)
			}
			g.refusal(60602+minute, &net.TCPAddr{}, nil)
			time.Sleep(logEvery)
		}
		if n := strings.Count(log.String(), "\n"); n != 6 {
			t.Errorf("%d lines:\n%s", n, &log)
		}
	})
}
