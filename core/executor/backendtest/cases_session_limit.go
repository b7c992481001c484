package backendtest

import (
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func sessionLimits(c *Case) {
	if !c.caps().Memory && !c.caps().Disk {
		c.Skipf("this backend bounds neither memory nor disk")
	}
	o := c.open(func(s *executor.Session) { s.Limits.MemoryBytes, s.Limits.DiskBytes = 64<<20, 128<<20 })
	if c.caps().Disk {
		o.run(setHundred).succeeded()
		o.run(Program{
			Python: "with open('big', 'wb') as f:\n    for _ in range(96):\n        f.write(b'x' * (1 << 20))\n",
			Fake:   "fill-file big 96MB",
		}).succeeded()
		o.run(Program{Python: "1 / 0\n", Fake: "exit 1"}).status(executor.StatusFailed).hitNone()
		o.run(Program{
			Python: "with open('more', 'wb') as f:\n    for _ in range(96):\n        f.write(b'x' * (1 << 20))\n",
			Fake:   "fill-file more 96MB",
		}).status(executor.StatusFailed).kept().hit("config.disk_mb")
		o.says(showX, "100\n")
	}
	if c.caps().Memory {
		r := o.run(Program{
			Python: "keep = []\nwhile True:\n    keep.append(bytearray(b'x' * (4 << 20)))\n",
			Fake:   "alloc 1GB",
		}).status(executor.StatusOutOfMemory).hit("config.memory_mb")
		if r.result.SessionState != executor.SessionStateLost {
			c.Errorf("the interpreter ran out of memory, and its state is %q", r.result.SessionState)
		}
	}
}

func sessionCPUTime(c *Case) {
	c.need(c.caps().CPUTime, "a limit of CPU time")
	const limit = time.Second
	o := c.open()
	o.run(setHundred).succeeded()
	run := func(job executor.Job) *running {
		job.Limits.CPUTime, job.Spec.Limits.CPUTime, job.Limits.Timeout = limit, limit, awaittest.Forever
		return o.finish(job)
	}
	for range 2 {
		run(o.job(Program{Python: burning + "burn(0.6)\nprint('half')\n", Fake: "busy 600ms\nprint half"})).succeeded().prints("half\n")
	}
	run(o.job(Program{Python: "while True:\n    pass\n", Fake: "busy 1h"})).status(executor.StatusTimedOut).hit(executor.FieldCPUTime).kept()
	children := Program{Python: burning + "if os.fork() == 0:\n    burn(3600)\nos.wait()\n", Fake: "busy 1h"}
	if c.caps().Commands {
		run(o.command(children)).status(executor.StatusTimedOut).hit(executor.FieldCPUTime)
	}
	o.says(showX, "100\n")
	run(o.job(children)).status(executor.StatusTimedOut).hit(executor.FieldCPUTime)
}
