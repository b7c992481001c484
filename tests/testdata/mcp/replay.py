"""Replays a transcript against an MCP server with the official Python client.

    replay.py TRANSCRIPT --with NAME,… --set key=value … [--mode legacy|auto] (--url URL [--token T] | -- COMMAND ARG …)

A transcript is a list of steps. What a step may hold:
  call, args      a tool and its arguments; every call asks for progress, which must increase strictly
  read, text      a resource and its text; refused: the codes of the protocol error that reading it may be
  background      do not wait for the call; cancel: end that one as a client does
  want            fields that the structured content must have, and the text content as JSON too
  error           the text of a tool error
  content         the kinds of the content, "text", "resource_link" or an image's MIME type
  progress        the least number of progress notifications
  until           repeat the call until it is as it should be
  save            variables for later steps, from fields of the structured content
  link            a variable for the URI of the first link to a file
  only            the step is for servers that have all of these (--with)
A string that begins with ~ is a regular expression for the whole text; its named groups are saved. ${name} is a variable.
"""

import argparse
import asyncio
import json
import os
import re
import sys

import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

DEADLINE = 120.0  # of one step


class Wrong(Exception):
    pass


class Replay:
    def __init__(self, client, traits, variables):
        self.client, self.traits, self.variables = client, traits, variables
        self.background = {}
        self.count = 0

    def fill(self, value, escape=False):
        if isinstance(value, str):
            def put(match):
                text = self.variables[match[1]]
                return re.escape(text) if escape or value.startswith("~") else text
            return re.sub(r"\$\{(\w+)\}", put, value)
        if isinstance(value, list):
            return [self.fill(v) for v in value]
        if isinstance(value, dict):
            return {k: self.fill(v) for k, v in value.items()}
        return value

    def match(self, path, want, got):
        if isinstance(want, str) and want.startswith("~"):
            m = re.fullmatch(want[1:], got, re.S) if isinstance(got, str) else None
            if not m:
                raise Wrong(f"{path} is {got!r}, which does not match {want[1:]!r}")
            self.variables.update(m.groupdict())
        elif isinstance(want, dict) and len(want) == 1 and next(iter(want)) in ("type", "above", "below", "contains"):
            kind, operand = next(iter(want.items()))
            number = isinstance(got, (int, float)) and not isinstance(got, bool)
            ok = {
                "type": lambda: number and (operand == "number" or isinstance(got, int)),
                "above": lambda: number and got > operand,
                "below": lambda: number and got < operand,
                "contains": lambda: operand in got,
            }[kind]()
            if not ok:
                raise Wrong(f"{path} is {got!r}, want {kind} {operand!r}")
        elif isinstance(want, dict):
            for key, value in want.items():
                if not isinstance(got, dict) or key not in got:
                    raise Wrong(f"{path} has no {key}: {got!r}")
                self.match(f"{path}.{key}", value, got[key])
        elif isinstance(want, list):
            if not isinstance(got, list) or len(want) != len(got):
                raise Wrong(f"{path} is {got!r}, want {len(want)} elements")
            for i, value in enumerate(want):
                self.match(f"{path}[{i}]", value, got[i])
        elif type(want) is not type(got) or want != got:
            raise Wrong(f"{path} is {got!r}, want {want!r}")

    async def call(self, step):
        seen = []

        async def progress(value, total, message):
            seen.append(value)

        result = await self.client.call_tool(step["call"], self.fill(step.get("args", {})), progress_callback=progress)
        if any(b <= a for a, b in zip(seen, seen[1:])):
            raise Wrong(f"progress does not increase: {seen}")
        if len(seen) < step.get("progress", 0):
            raise Wrong(f"{len(seen)} progress notifications before the result, want {step['progress']}")
        return result

    def check(self, step, result):
        text = "".join(c.text for c in result.content if c.type == "text")
        if "error" in step:
            if not result.is_error:
                raise Wrong(f"is no error: {text[:2000]}")
            self.match("the error", self.fill(step["error"]), text)
            return
        if result.is_error:
            raise Wrong(f"is an error: {text[:2000]}")
        fields = result.structured_content
        self.match("the result", self.fill(step.get("want", {})), fields)
        try:
            told = json.loads(result.content[0].text)
        except ValueError:
            raise Wrong(f"the text is not JSON: {text[:200]!r}") from None
        if told != fields and told != fields.get("result"):
            raise Wrong("the text is not the structured content")
        if "content" in step:
            kinds = [c.mime_type if c.type == "image" else c.type for c in result.content]
            if kinds != step["content"]:
                raise Wrong(f"content is {kinds}, want {step['content']}")
        if "link" in step:
            self.variables[step["link"]] = str(next(c.uri for c in result.content if c.type == "resource_link"))
        for name, field in step.get("save", {}).items():
            self.variables[name] = fields[field]

    async def step(self, step):
        if "cancel" in step:
            task = self.background.pop(step["cancel"])
            if task.done():
                raise Wrong(f"the call has ended: {task.result()}")
            task.cancel()
            await asyncio.wait([task])
            return
        if "read" in step:
            try:
                result = await self.client.read_resource(self.fill(step["read"]), cache_mode="bypass")
            except MCPError as err:
                if err.error.code in step.get("refused", []):
                    return
                raise Wrong(f"code {err.error.code}: {err}") from None
            if "refused" in step:
                raise Wrong("is not refused")
            self.match("the resource", self.fill(step["text"]), result.contents[0].text)
            return
        if "background" in step:
            self.background[step["background"]] = asyncio.ensure_future(self.call(step))
            await asyncio.sleep(0)
            return
        while True:
            result = await self.call(step)
            try:
                return self.check(step, result)
            except Wrong:
                if not step.get("until"):
                    raise
            await asyncio.sleep(0.1)

    async def run(self, steps):
        failures = 0
        for step in steps:
            if not set(step.get("only", [])) <= self.traits:
                continue
            self.count += 1
            try:
                async with asyncio.timeout(DEADLINE):
                    await self.step(step)
            except Exception as err:
                failures += 1
                print(f"FAILED {step['name']}: {type(err).__name__}: {err}")
        return failures


async def main():
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser()
    parser.add_argument("transcript")
    parser.add_argument("--with", dest="traits", default="")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--mode", default="legacy")
    parser.add_argument("--url")
    parser.add_argument("--token")
    options = parser.parse_args(sys.argv[1:split])
    command = sys.argv[split + 1:]
    with open(options.transcript, encoding="utf-8") as f:
        steps = json.load(f)
    if command:
        transport = stdio_client(StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ)))
    else:
        headers = {"Authorization": f"Bearer {options.token}"} if options.token else {}
        transport = streamable_http_client(options.url, http_client=httpx2.AsyncClient(headers=headers, timeout=DEADLINE))
    variables = dict(s.split("=", 1) for s in options.set)
    async with Client(transport, mode=options.mode) as client:
        tools = await client.list_tools()
        named = {s["call"] for s in steps if "call" in s}
        listed = {t.name for t in tools.tools}
        failures = 0
        if missing := named - listed:
            failures += 1
            print(f"FAILED tools/list: {sorted(missing)} are not there")
        for tool in tools.tools:
            if not tool.description or not tool.output_schema or tool.annotations is None:
                failures += 1
                print(f"FAILED tools/list: {tool.name} lacks a description, an output schema or annotations")
        replay = Replay(client, set(options.traits.split(",")), variables)
        failures += await replay.run(steps)
    print(f"{replay.count} steps, {failures} failures")
    return 1 if failures or not replay.count else 0


sys.exit(asyncio.run(main()))
