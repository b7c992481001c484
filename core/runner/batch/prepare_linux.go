package batch

func prepareMain(_, _ string) int { return ExitNotRun }
