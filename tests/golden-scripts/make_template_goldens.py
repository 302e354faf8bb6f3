"""Writes tests/data/templates/cases.json: Jinja 2's output for the templates next to it.

The environment is the one that transformers builds for `apply_chat_template`. Run with a Python that has
jinja2 3.1; with `--gguf FILE` the file's own template is first written to smollm2.jinja.
"""

import argparse
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data" / "templates"
NOW = 1_721_999_096


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment(with_date):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def strftime_now(format):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None).strftime(format)

    result = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    result.filters["tojson"] = tojson
    result.globals["raise_exception"] = raise_exception
    if with_date:
        result.globals["strftime_now"] = strftime_now
    return result


def say(role, content, **more):
    return {"role": role, "content": content, **more}


TOOL = {
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "description": "Get the weather <now> & \"here\" – it's é.",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "The city, e.g. Zürich"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "array", "items": {"type": "integer"}},
                "options": {"type": "object", "properties": {"b": {"type": "boolean"}}, "required": ["b"]},
                "limit": {"type": ["number", "null"]},
            },
            "required": ["location"],
        },
        "return": {"type": "string", "description": "text"},
    },
}
SECOND_TOOL = {
    "type": "function",
    "function": {"name": "stop", "description": "", "parameters": {"type": "object", "properties": {}}},
}
CALL = {"type": "function", "id": "abcdefghi",
        "function": {"name": "get_current_weather", "arguments": {"location": "Paris", "days": [1, 2.5, -3], "x": None}}}
USER = say("user", " What is 1 < 2?\n")
ANSWER = say("assistant", "<think>\nhmm\n</think>\n\nIt is true. ")
CONVERSATIONS = {
    "one": [USER],
    "system": [say("system", "Be brief."), USER],
    "turns": [say("system", "Be brief. "), USER, ANSWER, say("user", "Why? 你好 😀")],
    "answered": [USER, ANSWER],
    "not_alternating": [USER, USER],
    "tool": [USER, say("assistant", None, tool_calls=[CALL]), say("tool", "22", tool_call_id="abcdefghi")],
    "tool_text": [USER, say("assistant", "", tool_calls=[CALL]), say("tool", "22", tool_call_id="abcdefghi"),
                  say("tool", "23", tool_call_id="abcdefghi"), say("assistant", "Warm."), say("user", "Thanks")],
    "parts": [say("system", [{"type": "text", "text": "Brief."}]),
              say("user", [{"type": "image"}, {"type": "text", "text": " what is it? "}])],
    "empty": [],
}
OPTIONS = {
    "plain": {},
    "prompt": {"add_generation_prompt": True},
    "tools": {"add_generation_prompt": True, "tools": [TOOL, SECOND_TOOL]},
    "documents": {"documents": [{"title": "A", "text": "first"}, {"text": "second"}], "controls": {"length": "short"}},
    "no_thinking": {"add_generation_prompt": True, "enable_thinking": False, "tools_in_user_message": False,
                    "tools": [TOOL]},
    "undated": {"with_date": False, "add_generation_prompt": True},
}

CONTEXT = {
    "messages": CONVERSATIONS["turns"],
    "words": ["b", "A", "c", "a"],
    "numbers": [3, 1, 2, 2],
    "people": [{"name": "Ann", "age": 30, "in": {"x": 1}}, {"name": "bob", "age": 20}, {"name": "Cy", "age": 30}],
    "map": {"z": 1, "a": [1, "two", None, True, 2.5], "items": "hidden", "q": {"k": "v'\"\\\n"}},
    "text": "Hello, wörld 😀",
    "lines": "one\n\n two\r\nthree ",
    "nothing": None,
    "yes": True,
    "tools": [TOOL],
}

SNIPPETS = r"""
{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ 1 ~ 2 + 3 }}
{{ 'a' ~ 1 ~ none ~ true ~ 2.0 ~ [1, 'x'] ~ undefined_name }}
{{ 1.0 }} {{ 1e20 }} {{ 1e16 }} {{ 123456789012345.6 }} {{ 1e-5 }} {{ 0.0001 }} {{ 1.5e300 * 1e300 }} {{ 10 / 4 }} {{ 3 / 3 }} {{ 0.1 + 0.2 }}
{{ -2 ** 2 }} {{ - 3 | abs }} {{ +1 }} {{ not 1 == 2 }} {{ not true and false }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 == 1.0 }} {{ true == 1 }} {{ none == false }} {{ (1, 2) == [1, 2] }}
{{ 'ell' in text }} {{ 'x' not in text }} {{ 1 in [1, 2] }} {{ 'z' in map }} {{ 'z' in nope }} {{ 2 in (1, 2) }}
{{ words[0] }}{{ words[-1] }}{{ words[9] }}|{{ text[0] }}{{ text[-1] }}|{{ words[1:] }}{{ words[:-1] }}{{ words[::-1] }}{{ words[::2] }}{{ words[3:0:-2] }}{{ text[7:12] }}{{ text[::-1] }}{{ text[-3:] }}
{{ words[-9:2] }}{{ words[1:99] }}{{ words[5:] }}{{ words[-1:-9:-1] }}{{ words[9:-9:-1] }}{{ words[:1:-1] }}
{{ map.z }} {{ map['a'] }} {{ map.items() | list }} {{ map['items'] }} {{ map.get('nope') }} {{ map.get('nope', 3) }} {{ map.keys() | list }} {{ map.values() | list }}
{{ map }}
{{ map | tojson }}
{{ map | tojson(indent=2) }}
{{ map | tojson(separators=(',', ':')) }} {{ map | tojson(sort_keys=true) }} {{ text | tojson(ensure_ascii=true) }} {{ [] | tojson(indent=4) }} {{ {} | tojson(indent=4) }}
{{ {1: 'a', none: 2, true: 3, 'x': [1, (2, 3)]} | tojson }} {{ {1: 'a', true: 3} }} {{ [1.0, 1e100, -0.0] | tojson }}
{{ '<a href="x">&' | tojson }} {{ '\u0001\x7f\t' | tojson }} {{ '<&>"\'' | e }}
{{ undefined_name }}|{{ undefined_name is defined }}|{{ map.nope is defined }}|{{ map.nope.nope }}
{{ nope.x }}
{{ nope() }}
{{ nope | tojson }}
{{ nope + 'x' }}
{{ 'x' + 1 }}
{{ 1 + 'x' }}
{{ [1] + [2] }} {{ [0] * 3 }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ 'x' * -1 }}
{{ 'x' + none }}
{{ none + 1 }}
{{ [1] + (2,) }}
{{ 1 / 0 }}
{{ 1 < 'a' }}
{% for x in none %}{% endfor %}
{% for x in 3 %}{% endfor %}
{% for x in nope %}{% else %}empty{% endfor %}
{{ yes and 'a' or 'b' }} {{ '' or 0 or [] }} {{ 1 and 2 and 3 }} {{ none or 'x' }} {{ 'a' if yes else 'b' }} {{ 'a' if not yes }} {{ 1 if false else 2 if false else 3 }}
{{ "a" "b" 'c' }} {{ "\n\t\\\"\'\x41\u00e9\101\q" | tojson }} {{ 'a\
b' }}
{{ 0x1f }} {{ 1_000 }} {{ 0b101 }} {{ 0o17 }} {{ 1.5e3 }}
{{ "}}" }} {{ '{%' }} {{ {'a': {'b': 1}} }} {{ {'a': {'b': 1}}['a']['b'] }}
{# a comment {{ x }} #}a{#- b -#} c {#+ d +#} e
a {%- if true %} b {% endif -%} c
a {%+ if true %} b {% endif +%} c
  {% if true %}
 x
  {% endif %}
 y
	{% if true %}	x{% endif %}
{{ 'a' -}}   b   {{- 'c' }}
{{ 'a' }}
b
{% raw %}{{ not }} {% x %}{% endraw %}|
 {%- raw -%}  a  {%- endraw -%}  b
  {% raw %}
 keep {{
  {% endraw %}
x
{% set a = 1 %}{% set b, c = 2, 3 %}{{ a + b + c }}{% set d %}x{{ a }}y{% endset %}{{ d }}{% set e | upper %}abc{% endset %}{{ e }}
{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}
{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}
{% set ns = namespace(x=1) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.nope }}{{ ns['x'] }}
{% set map.x = 1 %}
{% for w in words %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('x', 'y') }} {% endfor %}
{% for w in words if w != 'A' %}{{ loop.index }}{{ w }}{{ loop.length }}{% else %}none{% endfor %}
{% for w in words if w == 'Z' %}{{ w }}{% else %}none{% endfor %}
{% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %}{% for k in map %}{{ k }}{% endfor %}{% for c in 'aé' %}[{{ c }}]{% endfor %}
{% for p in people %}{% for q in people %}{{ loop.index }}{% if q.name == 'bob' %}{% continue %}{% endif %}{% if loop.index > 2 %}{% break %}{% endif %}{{ q.name }}{% endfor %}{{ loop.index }}{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}
{% for a, b in [[1, 2], [3, 4]] %}{{ a * b }},{% endfor %}{% for i in range(3) %}{{ i }}{% endfor %}{{ range(1, 10, 3) | list }}{{ range(5, 0, -2) | list }}{{ range(0) | list }}
{% for a, b in [[1]] %}{% endfor %}
{% macro f(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1) }} {{ f(1, c=3) }} {{ f(1, 2, 3, 4, z=5) }} {{ f() }}
{% macro g(n) %}{% if n > 0 %}{{ n }}{{ g(n - 1) }}{% endif %}{% endmacro %}{{ g(5) }}
{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call box('b') %}in {{ words[0] }}{% endcall %}
{% macro each(l) %}{% for x in l %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(x) each([1, 2]) %}({{ x }}){% endcall %}
{% filter upper %}abc{{ 'd' }}{% endfilter %} {% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}
{% generation %}a{% set inner = 1 %}{% endgeneration %}{{ inner is defined }}
{{ text | upper }} {{ text | lower }} {{ text | length }} {{ text | title }} {{ 'aB-cD (eF' | title }} {{ "it's a_b c1d" .title() }} {{ 'ELAN vital' | capitalize }} {{ text | replace('l', 'L') }} {{ text | replace('l', 'L', 1) }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.replace('', '-') }}
[{{ '  a b ' | trim }}][{{ 'xxaxx' | trim('x') }}][{{ '  a '.strip() }}][{{ '  a '.lstrip() }}][{{ '  a '.rstrip() }}][{{ 'xyaxy'.strip('yx') }}][{{ '\n a\n'.strip('\n') }}][{{ '\u00a0a\u2003' | trim }}]
{{ 'a,b,,c'.split(',') }} {{ 'a,b,,c'.split(',', 1) }} {{ 'a,b,,c'.rsplit(',', 1) }} {{ ' a  b c '.split() }} {{ ' a  b c '.split(none, 1) }} {{ ' a  b c '.rsplit(none, 1) }} {{ ''.split(',') }} {{ ''.split() }} {{ lines.splitlines() }} {{ 'abc'.partition('b') }} {{ 'abc'.rpartition('x') }} {{ 'a-b-c'.rpartition('-') }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith('bc') }} {{ 'abc'.find('c') }} {{ 'abc'.find('x') }} {{ 'wörld'.find('r') }} {{ 'abcb'.rfind('b') }} {{ 'banana'.count('an') }} {{ 'abc'.index('b') }} {{ [1, 2, 1].count(1) }} {{ [5, 6].index(6) }}
{{ 'abc'.index('x') }}
{{ 'Abc'.upper() }} {{ 'AbC'.lower() }} {{ 'abc'.capitalize() }} {{ 'AbC'.swapcase() }} {{ 'a1'.isalnum() }} {{ 'a'.isalpha() }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ ' '.isspace() }} {{ 'A1'.isupper() }} {{ '1'.isupper() }} {{ 'a'.islower() }} {{ '7'.zfill(3) }} {{ '-7'.zfill(4) }} {{ 'ab'.center(5) }}| {{ 'ab'.ljust(4) }}| {{ 'ab'.rjust(4, '.') }} {{ 'prefix-a'.removeprefix('prefix-') }} {{ 'a.txt'.removesuffix('.txt') }}
{{ '-'.join(['a', 'b']) }} {{ words | join(', ') }} {{ numbers | join }} {{ people | join(',', attribute='name') }} {{ ','.join(words | map('upper')) }}
{{ '-'.join([1]) }}
{{ '%s is %d and %.2f%% %5s|%-5s|%05d %r' % ('x', 3, 2.5, 'a', 'b', 42, 'q') }} {{ 'a %s' % 'b' }} {{ '%s' | format(1) }} {{ '{} {} {{}}'.format(1, 'a') }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{x}'.format(x=5) }}
{{ words | first }} {{ words | last }} {{ [] | first }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ numbers | sort(reverse=true) }} {{ people | sort(attribute='age') | map(attribute='name') | list }} {{ words | reverse | list }} {{ 'abc' | reverse }} {{ numbers | unique | list }} {{ words | unique | list }} {{ numbers | sum }} {{ people | sum(attribute='age') }} {{ numbers | min }} {{ numbers | max }} {{ words | list }} {{ 'abc' | list }} {{ map | list }} {{ numbers | batch(3) | list }} {{ map | dictsort }} {{ {'b': 1, 'A': 2} | dictsort }} {{ map | length }} {{ map | count }}
{{ people | selectattr('age', 'equalto', 30) | map(attribute='name') | list }} {{ people | rejectattr('age', 'gt', 25) | map(attribute='name') | join }} {{ people | selectattr('in', 'defined') | list | length }} {{ people | selectattr('nope', 'defined') | list }} {{ numbers | select('odd') | list }} {{ numbers | reject('equalto', 2) | list }} {{ words | map('upper') | list }} {{ people | map(attribute='in.x', default=0) | list }} {{ [1, 0, 2] | select | list }} {{ people | groupby('age') | map('first') | list }}
{{ 'a' if people | selectattr('age', 'equalto', 99) else 'b' }} {{ 'a' if people | selectattr('age', 'equalto', 99) | list else 'b' }}
{{ nope | default('d') }} {{ '' | default('d') }} {{ '' | default('d', true) }} {{ none | d('x') }} {{ nothing | default('d', boolean=true) }}
{{ '42' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ 3.9 | int }} {{ ' 5 ' | int }} {{ '2.5' | float }} {{ 'x' | float }} {{ 5 | float }} {{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2.1 | round(0, 'ceil') }} {{ -3 | abs }} {{ 5 | string + 'x' }} {{ true | string }} {{ none | string }} {{ 'a b c' | wordcount }} {{ 'a\n\nb' | indent }} {{ 'a\nb' | indent(2, true) }} {{ 'a\nb' | indent('> ') }} {{ 'x' | center(5) }}|
{{ 1 is number }} {{ true is number }} {{ true is integer }} {{ 1.0 is float }} {{ 'a' is string }} {{ map is mapping }} {{ words is sequence }} {{ 'a' is sequence }} {{ map is iterable }} {{ 3 is iterable }} {{ none is none }} {{ nothing is not none }} {{ yes is true }} {{ 1 is true }} {{ yes is boolean }} {{ 3 is odd }} {{ 3 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is eq 1 }} {{ 1 is ne 2 }} {{ 2 is gt 1 }} {{ 1 is in [1] }} {{ 'a' is lower }} {{ 'A' is upper }} {{ raise_exception is defined }} {{ range is callable }} {{ words is not mapping }} {{ nope is undefined }} {{ 1 is sameas 1 }} {{ 'upper' is filter }} {{ 'odd' is test }}
{{ words.append('x') }}
{{ map.update({'a': 1}) }}
{{ words.pop() }}
{{ dict(a=1, b='x') }} {{ dict(map, c=2).c }} {{ dict([['a', 1]]) }} {{ map.copy() == map }}
{{ raise_exception('no: ' ~ 1) }}
{{ strftime_now('%d %b %Y') }} {{ strftime_now('%A %a %B %m %y %H:%M:%S %I %p %j %e %-d %-m %%') }} {{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%F %T %D %R') }}
{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% else %}{% set loop_messages = messages %}{% endif %}{% for m in loop_messages %}{{ m.role }}:{{ m['content'] }};{% endfor %}
{{ messages | map(attribute='role') | unique | join(',') }} {{ (messages | last).content }} {{ messages[-1].content[:4] }} {{ messages | selectattr('role', 'eq', 'user') | map(attribute='content') | list }}
{{ tools[0].function.parameters.properties.items() | list | length }} {{ tools | map(attribute='function.name') | list }} {% for k, v in tools[0].function.parameters.properties | dictsort %}{{ k }}{% endfor %} {% for k, v in tools[0].function.parameters.properties | items %}{{ k }}{% endfor %}
{{ (1, 'a', (2,)) }} {{ () }} {{ [] }} {{ {} }} {{ ['it\'s', "q\"", 'b\\', 'né', '\x00'] }} {{ [none, true, 1.0] }} {{ 1, 2 }}
{{ nope if false }}{{ (nope if false) is defined }}{{ [nope] | length }}
{% if nope %}a{% elif 0 %}b{% elif '' %}c{% elif [] %}d{% elif {} %}e{% elif none %}f{% elif 0.0 %}g{% else %}h{% endif %}
{{ 'a' is string and 'b' is string or nope }} {{ not nope is defined }} {{ 'x' if map.z is defined and map.z == 1 else 'y' }} {{ map.z is defined == true }}
{{ text | attr('upper') is defined }} {{ (words | map('length') | list) }} {{ words | map('replace', 'a', 'z') | list }}
{% unknown %}
{{ 1 | unknown_filter }}
{{ 1 is unknown_test }}
{% if %}{% endif %}
{% if 1 %}
{% endif %}
{{ 1 +
{{ 'abc }}
{{ (1 }}
{# open
{% for x in [1] %}{% endif %}
{{ a b }}
{{ 1 2 }}
"""


def multi_line(snippets):
    """One case per line, but a line that begins with a blank or a lone tag joins the previous one."""
    cases = []
    joined = [
        "  {% if true %}\n x\n  {% endif %}\n y",
        "{{ 'a' }}\nb",
        "  {% raw %}\n keep {{\n  {% endraw %}\nx",
        "{{ 'a\\\nb' }}",
        "{{ \"a\" \"b\" 'c' }} {{ \"\\n\\t\\\\\\\"\\'\\x41\\u00e9\\101\\q\" | tojson }} {{ 'a\\\nb' }}",
    ]
    for whole in joined:
        if "\n" + whole + "\n" in snippets:
            snippets = snippets.replace("\n" + whole + "\n", "\n")
            cases.append(whole)
    return cases + [line for line in snippets.split("\n") if line]


def outcome(env, source, variables):
    try:
        return {"expected": env.from_string(source).render(**variables)}
    except Exception as error:  # Any failure of the template is the expected outcome.
        return {"error": str(error)[:120]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gguf")
    arguments = parser.parse_args()
    if arguments.gguf:
        from gguf import GGUFReader

        template = GGUFReader(arguments.gguf).fields["tokenizer.chat_template"].contents()
        (FOLDER / "smollm2.jinja").write_text(template, newline="")
    environments = {True: environment(True), False: environment(False)}
    cases = []
    for path in sorted(FOLDER.glob("*.jinja")):
        with path.open(newline="") as file:
            source = file.read()
        for conversation, messages in CONVERSATIONS.items():
            seen = []
            for name, options in OPTIONS.items():
                options = dict(options)
                with_date = options.pop("with_date", True)
                variables = {"add_generation_prompt": False, "tools": None, "documents": None, "bos_token": "<bos>",
                             "eos_token": "</s>", "messages": messages, **options}
                found = outcome(environments[with_date], source, variables)
                if found in seen:
                    continue
                seen.append(found)
                cases.append({"file": path.name, "messages": conversation, "options": name, **found})
    snippets = [{"source": source, **outcome(environments[True], source, {**CONTEXT, "add_generation_prompt": False})}
                for source in multi_line(SNIPPETS)]
    goldens = {"now": NOW, "conversations": CONVERSATIONS, "options": OPTIONS, "context": CONTEXT, "cases": cases,
               "snippets": snippets}
    text = json.dumps(goldens, ensure_ascii=False, indent=None, separators=(",", ":"))
    text = text.replace('},{"file"', '},\n{"file"').replace('},{"source"', '},\n{"source"')
    (FOLDER / "cases.json").write_text(text + "\n")
    print(len(cases), "cases,", len(snippets), "snippets,", len(text), "bytes")
    print(sum("error" in case for case in cases), "errors in cases,", sum("error" in case for case in snippets))


main()
