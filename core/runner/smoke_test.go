//go:build linux

package runner

import "testing"

func TestSmoke(t *testing.T) {
	r := startRunner(t, testConfig(t))
	res, rec := r.run(t, shell("echo out; echo err >&2; id; pwd; cat /proc/self/cgroup; env; ls -la /proc/self/fd; exit 3"), RunInput{})
	t.Logf("%+v\n%s\n%s", res, rec.stdout(), rec.stderr())
	t.Log(r.Conn.reply)
}
