// See control.js.

// Values.

function bundle(value) {
  const forms = {};
  if (value !== null && typeof value === 'object') {
    try {
      const show = value[Symbol.for('Jupyter.display')];
      const given = typeof show === 'function' ? show.call(value) : undefined;
      for (const [mime, form] of Object.entries(given || {})) {
        if (Buffer.isBuffer(form) || form instanceof Uint8Array) forms[mime] = Buffer.from(form);
        else if (typeof form === 'string' && /^image\/(?!svg)|pdf$/.test(mime)) forms[mime] = Buffer.from(form, 'base64');
        else if (typeof form === 'string') forms[mime] = Buffer.from(form);
        else forms[mime] = Buffer.from(stringify(form));
      }
    } catch {
      // Its text form remains.
    }
  }
  return forms;
}

function show(value, isValue) {
  if (!cell || cell.displays >= maxDisplays) {
    if (cell) cell.dropped++;
    return;
  }
  const forms = bundle(value);
  clean(value);
  let text = forms['text/plain'] || Buffer.from(describe(value));
  delete forms['text/plain'];
  let truncated = false;
  if (text.length > maxText) {
    text = Buffer.from(text.subarray(0, maxText).toString() + '…');
    truncated = true;
  }
  const data = {};
  let room = maxData;
  for (const [mime, form] of [['text/plain', text], ...Object.entries(forms)]) {
    if (form.length > room) {
      truncated = true;
      continue;
    }
    room -= form.length;
    data[mime] = form.toString('base64');
  }
  cell.displays++;
  send({ op: 'display', n: cell.n, display: { data, value: isValue, truncated } });
}

// The realm.

const session = new inspector.Session();
session.connect();

function post(method, params) {
  let answer;
  session.post(method, params, (error, result) => {
    answer = error ? { error } : result;
  });
  return answer || {};
}

const holder = { value: undefined };
Object.defineProperty(globalThis, '__pyexec_holder', { value: holder, enumerable: false, configurable: true });
const holderID = post('Runtime.evaluate', { expression: '__pyexec_holder' }).result.objectId;
delete globalThis.__pyexec_holder;

// real returns the value of a remote object.
function real(remote) {
  if (remote.objectId) {
    post('Runtime.callFunctionOn', {
      objectId: holderID, functionDeclaration: 'function (value) { this.value = value }', arguments: [{ objectId: remote.objectId }],
    });
    const value = holder.value;
    holder.value = undefined;
    return value;
  }
  if (remote.unserializableValue !== undefined) {
    const text = remote.unserializableValue;
    return text.endsWith('n') && remote.type === 'bigint' ? BigInt(text.slice(0, -1)) : text === '-0' ? -0 : Number(text);
  }
  return remote.type === 'undefined' ? undefined : remote.value;
}

// importsRenamed renames import() in code to a function, because scripts of the inspector cannot import. It skips strings,
// templates, comments and regular expressions. Import declarations and import.meta remain, and are errors.
function importsRenamed(code, name) {
  if (!/\bimport\s*\(/.test(code)) return code;
  const token = /\/\/[^\n]*|\/\*[^]*?\*\/|'(?:[^'\\\n]|\\[^])*'|"(?:[^"\\\n]|\\[^])*"|[A-Za-z_$\u0080-\uffff][\w$\u0080-\uffff]*|\d[\w.]*|\s+|[^]/y;
  const pattern = /\/(?:[^\\/[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*/y;
  const before = /^(?:return|typeof|case|in|of|delete|void|throw|new|do|else|instanceof|yield|await)$/;
  let out = '';
  let last = ''; // the last token that counts
  const open = []; // depths of braces at which a template continues
  const calls = []; // positions in out of names that may be a method's name, and the depth of their parentheses
  let depth = 0;
  let round = 0;
  let at = 0;
  const template = () => {
    while (at < code.length) {
      const c = code[at];
      if (c === '\\') {
        out += code.slice(at, at + 2);
        at += 2;
      } else if (c === '`') {
        out += c;
        at++;
        last = '`';
        return;
      } else if (c === '$' && code[at + 1] === '{') {
        out += '${';
        at += 2;
        open.push(depth);
        last = '{';
        return;
      } else {
        out += c;
        at++;
      }
    }
  };
  while (at < code.length) {
    if (code[at] === '`') {
      out += '`';
      at++;
      template();
      continue;
    }
    if (code[at] === '}' && open.length && open[open.length - 1] === depth) {
      open.pop();
      out += '}';
      at++;
      template();
      continue;
    }
    token.lastIndex = at;
    let text = token.exec(code)[0];
    if (text === '/' && (last === '' || before.test(last) || !/[\w$\])}'"`/]$/.test(last))) {
      pattern.lastIndex = at;
      const found = pattern.exec(code);
      if (found) text = found[0];
    }
    at += text.length;
    if (text === '{') depth++;
    if (text === '}') depth--;
    if (text === '(') round++;
    if (text === ')') round--;
    if (text === ')' && calls.length && calls[calls.length - 1].round === round) {
      const start = calls.pop().start;
      if (/^[^\S\n]*\{/.test(code.slice(at, at + 200))) out = out.slice(0, start) + 'import' + out.slice(start + name.length);
    }
    if (text === 'import' && last !== '.' && /^\s*\(/.test(code.slice(at, at + 200))) {
      calls.push({ start: out.length, round });
      out += name;
    } else out += text;
    if (!/^\s|^\/[/*]/.test(text)) last = text;
  }
  return out;
}

// imported imports for a cell. A relative specifier is relative to the present folder.
function imported(specifier, options) {
  const text = String(specifier);
  const place = /^\.{0,2}\//.test(text) ? require('url').pathToFileURL(path.resolve(text)).href : text;
  return load(place, options);
}

Object.defineProperty(globalThis, '__pyexec_import', { value: imported, enumerable: false });
Object.defineProperty(globalThis, 'display', {
  value: (...values) => values.forEach((value) => show(value, false)), enumerable: false, writable: true, configurable: true,
});
