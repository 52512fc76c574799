#!/usr/bin/env python3
"""Write snippets.json: small templates and what jinja2 as transformers sets it up makes of them.

    pip install transformers==5.19.0 jinja2==3.1.6
    python3 tokens/testdata/chat/make_snippets.py > tokens/testdata/chat/snippets.json

Each row is a template, its variables and the text, or no text where Python raises.
"""
import json
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template

V = {
    "s": "text", "pad": "  \n x \u00a0\u3000\x1c", "uni": "\u00c9t\u00e9 \u4f60\U0001f600", "n": 3, "f": 1.0, "g": 1e22, "h": 1.5e-7, "big": 2**53 + 1, "none": None, "t": True,
    "q": "it's \"q\"\n\\", "d": {"b": 1, "a": [1, 2.0, None, True, "x'y"], "items": "shadow", "A": {}}, "l": ["b", "a", "C"], "e": [],
    "m": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo", "extra": None}, {"role": "user", "content": "bye"}],
    "u": "\u2028\u2029<>&'\x7f\x00\ud7ff",
}
T = [
    # Text around tags.
    "a\n{% if t %}\nb\n{% endif %}\nc\n", "a\n  {% if t %}\n  b\n  {% endif %}\n  c", "a {{ s }} b", "  {{ s }}  {% if t %}x{% endif %}", "x {{- s -}} y", "Hello {{ s }}{%- if t %} z{% endif %}",
    "a\n\n{%- if t -%}\n\nb{% endif %}", "{% if t %}{% if t %}\n\nz{% endif %}{% endif %}", "  {# note #}\n x", "x {#- note -#} y", "x{# note #}\ny", "{%+ if t +%}\n a{% endif %}", "  {%+ if t %}x{% endif %}",
    "a\r\nb\r\n{% if t %}\r\nc{% endif %}\r\n", "end\n\n", "{% raw %}{{ s }} {% x %}{% endraw %}", " {%- raw -%} {{ s }} {%- endraw -%} z", "{{ '}}' }}{{ \"%}\" }}", "{{ {'a': {'b': 1}} }}", "\t{% for x in l %}\n\t{{ x }}\n\t{% endfor %}\n",
    # Literals.
    r"{{ 'a\nb\t\\ \' \" \x41 \u4f60 \U0001F600 \d' }}", "{{ 'a=b' }}{% set x = 'c=d' %}{{ x }}", "{{ 1 }}{{ 1.50 }}{{ -2 }}{{ [1, 'a', 2.0] }}", "{{ (1, 2) }}",
    # Printing.
    "{{ none }}|{{ t }}|{{ f }}|{{ g }}|{{ h }}|{{ big }}|{{ missing }}|{{ n }}", "{{ d }}", "{{ l }}{{ e }}", "{{ [q] }}", "{{ none ~ 'x' ~ f ~ t ~ n ~ missing }}", "{{ 'a' ~ s | upper ~ l[0] }}", "{{ f | string }}{{ none | string }}{{ d.a | string }}",
    "{{ s if t else none }}{{ none if t else s }}{{ s if not t }}", "{{ t and s }}{{ none or f }}{{ e or none }}",
    # JSON.
    "{{ d | tojson }}", "{{ d | tojson(indent=2) }}", "{{ d | tojson(indent=4, sort_keys=true) }}", "{{ d | tojson(separators=(',', ':')) }}", "{{ u | tojson }}", "{{ u | tojson(ensure_ascii=true) }}", "{{ uni | tojson(ensure_ascii=true) }}",
    "{{ [f, g, h, big, none] | tojson }}", "{{ e | tojson(indent=2) }}{{ {} | tojson(indent=2) }}", "{{ [1, {'a': []}] | tojson(indent=1) }}", "{{ missing | tojson }}", "{{ d.a[4] | tojson }}",
    # Filters and methods.
    "[{{ pad | trim }}]", "[{{ pad.strip() }}]", "[{{ pad.lstrip() }}]", "[{{ pad.rstrip() }}]", "[{{ '--a-'.strip('-') }}]", "{{ 'xxabxx'.lstrip('x') }}{{ 'abxx'.rstrip('xb') }}", "{{ 'a,b,c'.split(',') }}", "{{ 'a,b,c'.split(',', 1)[1] }}", "{{ ' a  b\n'.split() }}",
    "{{ 'a,b,c'.rsplit(',', 1) }}", "{{ 'a'.split('') }}", "{{ s.startswith('te') }}{{ s.endswith(('x', 'xt')) }}{{ s.startswith('x') }}", "{{ s.replace('t', 'TT') }}{{ s.replace('t', 'T', 1) }}{{ s | replace('e', 'E') }}", "{{ s.upper() }}{{ 'AbC' | lower }}{{ 'aBC' | capitalize }}",
    "{{ ', '.join(l) }}{{ l | join('-') }}{{ [1, none, f] | join(',') }}", "{{ s | length }}{{ uni | length }}{{ d | length }}{{ missing | length }}", "{{ l | first }}{{ l | last }}{{ s | first }}{{ s | last }}{{ e | first }}", "{{ l | sort | join }}{{ m | sort(attribute='role') | map(attribute='role') | join(',') }}",
    "{{ d.keys() | list }}{{ d.values() | list | length }}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | items %}{{ k }};{% endfor %}", "{% for k, v in d | dictsort %}{{ k }};{% endfor %}", "{{ d.get('b') }}{{ d.get('zz') }}{{ d.get('zz', 'y') }}", "{{ d['items'] }}",
    "{{ m | selectattr('role', 'equalto', 'user') | map(attribute='content') | join(',') }}", "{{ m | rejectattr('role', 'eq', 'user') | list | length }}", "{{ m | selectattr('extra', 'defined') | list | length }}", "{{ l | map('upper') | join }}", "{{ l | reverse | join }}{{ l[::-1] }}{{ l[1:] }}{{ s[1:3] }}{{ uni[4:] }}",
    "{{ s.find('x') }}{{ uni.find('\u4f60') }}{{ s.count('t') }}", "{{ 'prefix-x'.removeprefix('prefix-') }}{{ 'x.y'.removesuffix('.y') }}", "{{ missing | default('x') }}{{ none | default('x') }}{{ none | default('x', true) }}{{ '' | default('y', boolean=true) }}{{ e | d('z') }}",
    "{{ s['text'] }}|{{ s.text }}|{{ s[0] }}|{{ d['b'] }}|{{ d['zz'] }}", "{{ 'x' | safe }}", "{{ '3' | int }}{{ n | int }}",
    # Tests and operators.
    "{{ s is string }}{{ s is sequence }}{{ d is sequence }}{{ d is mapping }}{{ l is iterable }}{{ n is number }}{{ f is float }}{{ none is none }}{{ missing is defined }}{{ t is true }}", "{{ n is eq 3 }}{{ s is equalto 'text' }}{{ s is in ['text'] }}",
    "{{ 'b' in d }}{{ 'ex' in s }}{{ 'b' in l }}{{ 'z' not in l }}", "{{ not s is none }}{{ s is not none and n == 3 }}", "{{ n + 1 }}{{ n * 2 }}{{ n - 5 }}{{ 7 % 3 }}{{ 7 // 2 }}{{ 1 + 2 ~ 'x' }}", "{{ 'a' * 3 }}{{ [1] + [2] }}", "{{ (n > 2) != (n % 2 == 0) }}",
    # Scopes.
    "{% for x in m %}{% if x.role == 'user' %}{% set c = x.content %}{% endif %}[{{ c }}]{% endfor %}", "{% set c = 'out' %}{% for x in m %}{{ c }}{% set c = x.content %}{{ c }}{% endfor %}{{ c }}", "{% for x in m %}{% set x = x.content %}{{ x }}{% endfor %}",
    "{% set ns = namespace(a=0, b='') %}{% for x in m %}{% set ns.a = ns.a + 1 %}{% set ns.b = ns.b ~ x.role %}{% endfor %}{{ ns.a }}{{ ns.b }}", "{% set x %}a{{ s }}b{% endset %}[{{ x }}]", "{% for x in m %}{% for y in l %}{% set z = y %}{{ z }}{% endfor %}{{ z }}{% endfor %}",
    "{% macro f(a, b='x', c=none) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}|{{ f('a', c=2) }}|{{ f(s)|upper }}", "{% macro f(x) %}{% for i in range(x) %}{{ i }}{% endfor %}{% endmacro %}{{ f(3) }}", "{% for x in m if x.role == 'user' %}{{ loop.index }}{{ loop.last }}{{ x.content }}{% endfor %}",
    "{% for x in m %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.previtem.role if loop.previtem is defined }}{{ loop.nextitem is defined }};{% endfor %}", "{% for x in e %}a{% else %}none{% endfor %}", "{% for x in l %}{% if x == 'a' %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{{ x }}{% break %}{% endfor %}",
    "{% generation %}{{ s }}{% endgeneration %}", "{% for c in s %}{{ c }}.{% endfor %}", "{{ range(5, 1, -2) | list }}",
    # What fails there must not render here, or at least not differ.
    "{{ raise_exception('no') }}", "{{ missing.x }}", "{{ none.items() }}", "{{ n.strip() }}", "{{ l.append(1) }}", "{{ range(100001) | list | length }}",
]


def main():
    rows = []
    for source in T:
        row = {"template": source}
        try:
            row["text"] = _compile_jinja_template(source).render(**V)
        except Exception as e:
            row["error"] = type(e).__name__
        rows.append(row)
    floats = [1.0, 0.1, 1e16, 1e15, 123456789.125, 1e-4, 1e-5, 5e-324, 1.7976931348623157e308, -0.0, 1e22, 1e21, 12345678901234567.0, 2.5, 100.0]
    json.dump({"values": V, "rows": rows, "floats": [[json.dumps(f), repr(f)] for f in floats]}, sys.stdout, indent=0)


main()
