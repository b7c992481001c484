package backendtest

import "github.com/python-executor/python-executor/core/executor"

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
