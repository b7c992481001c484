package main

import (
	"slices"

	"github.com/python-executor/python-executor/tests/internal/ratio"
)

// rows are the ratios that the project holds itself to. A name of a series is the name under which a group keeps it.
func rows() []ratio.Row {
	list := slices.Concat(pathRows(), loadRows(), mcpRows(), peerRows())
	for i := range list {
		if list[i].Name == "" {
			list[i].Name = list[i].Of.Series + " / " + list[i].To.Series
		}
	}
	return list
}

func p50(series string) ratio.Term { return ratio.Term{Series: series} }

// pathRows are about one call.
func pathRows() []ratio.Row {
	return []ratio.Row{
		{Of: p50(httpSync), To: p50(barePython), Limit: 0.35, Fast: true},
		// Not a fast row: of few samples, the slowest one says more about the machine than about us.
		{Name: "http sync, p99 / bare python, p50", Of: ratio.Term{Series: httpSync, Quantile: 0.99}, To: p50(barePython), Limit: 1},
		{Of: p50(userSync), To: p50(barePython), Limit: 0.6, Fast: true},
		{Of: p50(cachedSync), To: p50(venvPython), Limit: 1, Fast: true},
		{Of: p50(numpySync), To: p50(venvPython), Limit: 0.3, Fast: true},
		{Of: p50(cliFirst), To: p50(uvFirst), Limit: 1.5, Fast: true},
		{Of: p50(tarSync), To: p50(tarX), Limit: 1.25, Fast: true},
		{Name: "core memory with 1 GB tars, MB", Of: p50(tarCoreMB), Limit: 64},
		{Name: "core memory with all other calls, MB", Of: p50(coreMB), Limit: 64},
		{Of: p50(outputSync), To: p50(outputPipe), Limit: 2, Fast: true},
		{Of: p50(outputLogs), To: p50(outputPipe), Limit: 2, Fast: true},
		{Name: "10 MiB through exec/sync, CPU of core and plugin, ms", Of: p50(outputCPU), Limit: 60, Fast: true},
		{Of: p50(downloadHost), To: p50(downloadSandbox), Limit: 0.5, AtLeast: true, Fast: true},
	}
}

// loadRows are about many calls at once, and what is left of them.
func loadRows() []ratio.Row {
	list := []ratio.Row{
		{Of: p50(rateSync), To: p50(rateBare), Limit: 2, AtLeast: true, Fast: true},
		{Of: p50(rateModules), To: p50(rateModulesBare), Limit: 0.8, AtLeast: true, Fast: true},
		{Of: p50(rateBatch), To: p50(rateCalls), Limit: 3, AtLeast: true, Fast: true},
		{Of: p50(rateBatchFiles), To: p50(rateCallsFiles), Limit: 3, AtLeast: true, Fast: true},
		// Not a fast row: each slot unpacks the files on a disk once, which a short batch does not make up for.
		{Of: p50(rateBatchMany), To: p50(rateCallsMany), Limit: 3, AtLeast: true},
	}
	for _, name := range held {
		list = append(list, ratio.Row{Name: "leak watch, " + name + ", after / before", Of: p50(leakAfter + name), To: p50(leakBefore + name), Limit: 1.1})
	}
	for _, n := range nuisances {
		list = append(list, ratio.Row{Of: p50(httpSync + " beside " + n.name), To: p50(calmSync), Limit: 2, Fast: true})
	}
	return list
}

// mcpRows say how many times faster than a peer's ours are.
func mcpRows() (list []ratio.Row) {
	for _, transport := range []string{"mcp stdio", "mcp http"} {
		peer := "mcp peer" + transport[len("mcp"):]
		list = append(list,
			ratio.Row{Name: transport + ", peer's sys.executable / run_code in a context", Of: p50(peer + peerExecutable), To: p50(transport + runCode), Limit: 3, AtLeast: true},
			ratio.Row{Name: transport + ", peer's sys.executable / run_code without a context", Of: p50(peer + peerExecutable), To: p50(transport + runCodeAlone), Limit: 6, AtLeast: true, Fast: true},
			// The import of requests, which is most of the time, is in both terms of the first row, and in one of the second.
			ratio.Row{Name: transport + ", peer's uv run / cached requests", Of: p50(peer + peerUV), To: p50(transport + cachedRequests), Limit: 10, AtLeast: true, Fast: true},
			ratio.Row{Name: transport + ", peer's uv run / cached requests imported before", Of: p50(peer + peerUV), To: p50(transport + importedBefore), Limit: 10, AtLeast: true, Fast: true},
		)
	}
	// docs/mcp.md recommends this setting over stdio.
	stdio, peer := "mcp stdio", "mcp peer stdio"
	return append(list, ratio.Row{Name: stdio + ", peer's uv run / cached requests, imports learned", Of: p50(peer + peerUV), To: p50(stdio + importsLearned), Limit: 10, AtLeast: true, Fast: true})
}

// peerRows compare sessions, containers and Nomad with what they are built on.
func peerRows() []ratio.Row {
	return []ratio.Row{
		{Of: p50("session cell"), To: p50("jupyter cell"), Limit: 0.2},
		{Of: p50("session creation"), To: p50("jupyter kernel start"), Limit: 0.1},
		{Of: p50(dockerWarm), To: p50(dockerRun), Limit: 0.05, Fast: true},
		{Of: p50(dockerCold), To: p50(dockerRun), Limit: 1.3},
		{Of: p50(dockerWarm), To: p50(dockerExec), Limit: 1},
		{Of: p50(dockerTar), To: p50(dockerUVTar), Limit: 1.67},
		{Of: p50(dockerRateSync), To: p50(dockerRateRun), Limit: 1.5, AtLeast: true},
		{Of: p50(modeJob), To: p50(bareJob), Limit: 1.3},
		{Of: p50(modeWorkers), To: p50(bareJob), Limit: 1.0 / 30},
		{Of: p50(modeWorkers), To: p50(withoutIt), Limit: 1.5},
		{Of: p50(throughputOf(2)), To: p50(throughputOf(1)), Limit: 1.7, AtLeast: true},
	}
}
