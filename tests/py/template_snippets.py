"""Small templates by kind, and the variables that they see; test_template_snippets.py renders them."""

import functools

VARIABLES = {
    "s": "Hello, World",
    "u": "Grüße 你好 👋 straße",
    "e": "",
    "ws": " \t x y \n",
    "n": 7,
    "neg": -3,
    "f": 2.5,
    "z": 0,
    "t": True,
    "no": False,
    "nil": None,
    "l": [3, 1, 2],
    "ls": ["b", "a", "C"],
    "ll": [],
    "d": {"b": 2, "a": 1, "items": "shadow", "C": None},
    "dd": {},
    "rows": [
        {"name": "x", "v": 3, "on": True, "in": {"k": "q"}},
        {"name": "Y", "v": 1, "on": False, "in": {"k": "p"}},
        {"name": "z", "v": 2, "in": {"k": "q"}},
    ],
    "nested": {"a": [{"b": [1, [2, {"c": "d'e\"f"}]]}], "q": "it's"},
    "lines": "one\ntwo\r\nthree\n\nfive\n",
    "big": 12345678901234567890123,
    "deep": functools.reduce(lambda v, _: {"k": v}, range(90), 1),
    "html": "<a href=\"x\">'&'</a>",
}

EXPRESSIONS = r"""
1|2|'a'|"a'b"|'a"b'|'a\nb'|'\x41\u00e9\U0001f600\101'|'\q'|'\é'|'a' 'b'|1.0|1e3|1_000|0x1F|0b11|0o17|00|1.5e-7|1e16|1e15|123456789.123|0.1|1e22|-0.0
true|True|false|none|None|[]|[1]|()|(1,)|(1,2)|{}|{'a':1,'b':[1,2]}|[1,'a',none,true,1.5]|{1:2,none:3,true:4,(1,2):5}
n + 1|n - 10|n * 2|n / 2|n // 2|n % 4|neg // 2|neg % 5|n ** 2|2 ** -1|2 ** 0.5|-n|+n|--n|-2 ** 2|2 ** 3 ** 2|7 // -2|7 % -3|-7 % 3|7.5 // 2|-7.5 % 2|1 / 3|10 / 5|0.1 + 0.2|1e308 * 10|n / 0|n // 0|n % 0
1 + true|true + true|-true|true * 3|'a' * 3|3 * 'ab'|[1] * 2|(1,2) * 2|'a' + 'b'|'a' + 1|[1] + [2]|(1,) + (2,)|[1] + (2,)|none + 1|'a' - 'b'|'a' * 'b'|-'a'|+none
'a' ~ 1 ~ none ~ true ~ 1.5|s ~ missing ~ s|1 ~ 2 + 3|l ~ d
1 < 2|1 < 2 < 3|1 < 3 < 2|1 == 1.0|true == 1|'1' == 1|none == none|none == false|[1,2] == [1.0,2]|(1,) == [1]|{'a':1} == {'a':true}|1 != 2|'a' < 'b'|'B' < 'a'|[1,2] < [1,3]|[1] < [1,0]|(1,2) >= (1,)|1 < 'a'|none < 1|nil == none|missing == missing2|missing == none|missing != 1
'ell' in s|'x' not in s|1 in l|5 in l|'a' in d|2 in d|1 in s|none in l|missing in l|'a' in missing|'a' in none|1 in 5|'' in 'abc'|'你' in u|[1] in [[1]]|'b' in d.keys()|2 in d.values()|('a', 1) in d.items()|3 in range(5)|[] in d
not true|not e|not missing|t and no|no or s|e or none or 0|n and s|missing or 'x'|not not n|1 if t else 2|1 if no|'x' ~ (1 if no) ~ 'y'|(1 if no) is defined|'a' if e else 'b' if n else 'c'
s.upper()|s.lower()|s.title()|u.upper()|u.title()|u.capitalize()|s.swapcase()|'ΑΣ ΑΣΑ'.lower()|'ŉ ǰ ΐ ﬁ'.upper()|'ﬁx ǆ'.title()|'İ'.lower()|"they're bill's".title()|'x1y'.title()
ws.strip()|ws.lstrip()|ws.rstrip()|'xxaxx'.strip('x')|'abcba'.strip('ab')|'你a你'.strip('你')|s.strip('')|ws.strip(none)|'\u2003a\u00a0'.strip()|'abc'.lstrip('abc')|s.strip(1)
'a,b,,c'.split(',')|'a,b,,c'.split(',', 1)|'a,b,,c'.rsplit(',', 1)|' a  b '.split()|' a  b c '.split(none, 1)|' a  b c '.rsplit(none, 1)|'a b c'.rsplit()|''.split()|''.split(',')|'abc'.split('')|'a--b--c'.split('--')|'aXbX'.rsplit('X')|lines.split('\n')|lines.splitlines()|lines.splitlines(true)|'a\u2028b\x0bc\x85'.splitlines()|''.splitlines()|'a,b'.split(sep=',')|'a b c'.split(maxsplit=1)|'a,b'.partition(',')|'a,b,c'.rpartition(',')|'ab'.partition('x')|'ab'.rpartition('x')
s.startswith('Hell')|s.startswith(('x','H'))|s.endswith('ld')|s.endswith(('x','y'))|s.startswith('W', 7)|s.endswith('o', 0, 5)|s.startswith('')|s.startswith(1)|u.startswith('你', 6)|''.startswith('', 1)
s.replace('l','L')|s.replace('l','L',1)|s.replace('','-')|'ab'.replace('','-',2)|''.replace('','x')|s.replace('l','')|u.replace('你','ni')|s.replace('a',1)|s.replace('l','L',-1)
s.find('o')|s.find('o',5)|s.find('zz')|s.rfind('o')|u.find('👋')|u.rfind('s')|s.index('W')|s.index('zz')|s.rindex('l')|s.count('l')|s.count('')|'aaaa'.count('aa')|s.count('l',4)|s.find('',3)|s.find('',99)|s.find('o',-4)|s.count('o',0,5)
'-'.join(ls)|','.join('abc')|''.join([])|','.join(l)|','.join(d)|','.join(ls|map('upper'))|','.join(missing)
'abc'.isalpha()|'ab1'.isalpha()|''.isalpha()|'12'.isdigit()|'²'.isdigit()|'²'.isdecimal()|'½'.isnumeric()|'½'.isdigit()|'a1'.isalnum()|' \t'.isspace()|'a'.isascii()|'é'.isascii()|'abc'.islower()|'aB'.islower()|'AB1'.isupper()|'1'.isupper()|'你好'.isalpha()|'٣'.isdigit()
'7'.zfill(3)|'-7'.zfill(4)|'+7'.zfill(1)|'a'.ljust(3)|'a'.rjust(3,'.')|'ab'.center(5,'*')|'abc'.center(6)|'a'.center(4)|'a'.ljust(3,'ab')|'Test'.removeprefix('Te')|'Test'.removesuffix('st')|'Test'.removeprefix('x')|'x'.removesuffix('')
'{} {}'.format(1,'a')|'{1} {0}'.format(1,2)|'{a} {b.name}'.format(a=1,b=rows[0])|'{0[name]} {0[v]}'.format(rows[0])|'{{}} {}'.format(1)|'{:>5}|{:<5}|{:^5}|{:*^7}'.format('a','b','c','d')|'{:05d} {:+d} {:,} {:x} {:#x} {:b} {:o}'.format(42,42,1234567,255,255,5,8)|'{:.2f} {:10.3f} {:e} {:g} {:%}'.format(3.14159,2.5,12345.678,0.0001,0.25)|'{!r} {!s}'.format('a','b')|'{} {}'.format(1)|'{x}'.format(y=1)|'{'.format()|'{:.2}'.format('abc')|'{}'.format(none)|'{:>8}'.format(3.5)|'{:_}'.format(1234567)|'{0} {}'.format(1,2)|'{:d}'.format('x')
'%s and %d' % ('a', 3)|'%s' % s|'%s' % l|'%s' % (l,)|'%r' % 'a'|'%5d|%-5d|%05d|%+d' % (1,2,3,4)|'%x %X %o %#x' % (255,255,8,255)|'%.2f %e %g' % (3.14159, 1234.5, 0.00001)|'%%'  % ()|'%(a)s %(b)d' % d|'%s %s' % 'a'|'%s' % ('a','b')|'%d' % 'a'|'%d' % 3.9|'%5s|%-5s|%.2s' % ('a','b','cde')|'abc' % []|'abc' % 5|'%q' % 1|'%' % 1|'%c' % 'a'
s[0]|s[-1]|s[99]|s[0:3]|s[:-3]|s[::2]|s[::-1]|s[5:2]|s[-3:]|s[3:99]|u[0:6]|u[6]|u[::-1]|u[-3:]|l[0]|l[-1]|l[9]|l[1:]|l[::-1]|l[:0]|(1,2,3)[1:]|s['upper']()|s[none:2]|s[0:3:0]|s['a':]|l[true]|l['x']|l[1.0]|d['a']|d['zz']|d['items']|d.items|d.a|d.zz|d.C|rows[1].name|rows[0]['in'].k|rows.0.name|nested.a[0].b[1][1].c|d[[]]|n.foo|none.foo|missing.foo|missing['a']|missing[1:]|d.zz.y|s.foo|s.foo.bar|5[0]|d[1:]|range(5)[1:3]|range(10)[::3]|range(5)[-1]
d.keys()|d.values()|d.items()|dd.items()|d.get('a')|d.get('zz')|d.get('zz','def')|d.get('items')|d.copy()|d.keys()|list|d.items()|list|d|list|d|length|d.values()|list|d.update({})|d.pop('a')|l.append(1)|l.sort()|l.copy()|l.count(1)|l.index(2)|l.index(9)|(1,2).index(2)|d.pop is defined|l.append is defined|d.__class__|s.__len__()|d.get()
s|length|u|length|l|count|d|length|missing|length|n|length|none|length|range(4)|length|(l|map('string'))|length|lines|wordcount|u|wordcount
"""

# One a line where '|' is a filter and can't divide.
FILTERS = r"""
s|upper
s|lower|title
'foo-bar (baz) [q] <z> {w} a\tb'|title
"it's ok"|title
u|title
s|capitalize
n|capitalize
missing|upper
none|upper
ws|trim
ws|trim|length
'xxaxx'|trim('x')
n|trim
s|replace('l','L')
s|replace('l','L',1)
n|replace(7,8)
s|replace(old='H', new='J')
l|join
l|join(',')
l|join(1)
ls|join(', ')
rows|join('|', attribute='name')
rows|join('|', 'v')
s|join('.')
none|join
missing|join(',')
d|join(',')
missing|default('x')
missing|d('x')
e|default('x')
e|default('x', true)
none|default('x')
none|d('x', boolean=true)
missing|default
no|default(true, true)
l|first
l|last
ll|first
ll|last
s|first
s|last
u|last
d|first
d|last
missing|first
missing|last
none|first
(l|map('string'))|first
(l|map('string'))|last
ll|first is defined
l|list
s|list
d|list
missing|list
none|list
n|list
range(3)|list
l|string
none|string
1.0|string
u|string|length
'12'|int
' 12 '|int
'1_000'|int
'12.7'|int
'x'|int
'x'|int(5)
'ff'|int(0,16)
'0x1f'|int(base=16)
3.9|int
-3.9|int
true|int
none|int
none|int(9)
missing|int
'1e3'|int
l|int
'99999999999999999999'|length
'1.5'|float
'x'|float
'x'|float(1.0)
3|float
true|float
none|float
' 1e3 '|float
'inf'|float
'nan'|float
'1_0.5'|float
-5|abs
2.5|abs
true|abs
'a'|abs
2.5|round
3.5|round
2.567|round(2)
2.567|round(1,'floor')
2.561|round(1,'ceil')
5|round
5|round(1)
-2.5|round
1234.5|round(0,'ceil')
2.675|round(2)
'a'|round
2.5|round(method='x')
l|min
l|max
ll|max
ls|min
ls|max
ls|min(case_sensitive=true)
rows|max(attribute='v')
rows|min(attribute='name')
[1,'a']|max
l|sum
ll|sum
[1.5,2]|sum
rows|sum('v')
rows|sum(attribute='v', start=10)
ls|sum
[[1],[2]]|sum(start=[])
l|sort
l|sort(reverse=true)
ls|sort
ls|sort(case_sensitive=true)
ls|sort(true)
rows|sort(attribute='v')|map(attribute='name')|list
rows|sort(attribute='in.k,v')|map(attribute='name')|list
rows|sort(attribute='name', reverse=true)|map(attribute='name')|join
rows|sort
[1,'a']|sort
d|sort
s|sort|join
[true,false,2]|sort
d|dictsort
d|dictsort(true)
{'a':2,'b':1}|dictsort(by='value')
{'a':2,'b':1}|dictsort(reverse=true)
{'a':2,'b':1}|dictsort(false,'value',true)
d|dictsort(by='x')
{'b':1,'A':2}|dictsort|list
missing|dictsort
d|items|list
dd|items|list
missing|items|list
l|items|list
none|items|list
['a','A','b','a',1,1.0,true]|unique|list
['a','A','b']|unique(true)|list
rows|unique(attribute='in.k')|map(attribute='name')|list
[[1],[1]]|unique|list
l|reverse|list
s|reverse
u|reverse
d|reverse|list
(1,2)|reverse|list
range(4)|reverse|list
none|reverse
(l|map('string'))|reverse
missing|reverse|list
ls|map('upper')|list
ls|map('upper')|join
ls|map('replace','a','Z')|list
rows|map(attribute='name')|list
rows|map(attribute='zz')|list
rows|map(attribute='zz', default='D')|list
rows|map(attribute='in.k')|list
[[1,2],[3,4]]|map(attribute=1)|list
[[1,2],[3,4]]|map(attribute='0')|list
[[1,2],[3]]|map('length')|list
l|map('nofilter')|list
l|map|list
l|map(attribute='x', bad=1)|list
none|map('upper')|list
missing|map('upper')|list
''|map('upper')|list
n|map('upper')|list
[0,1,'',none,'a',[]]|select|list
[0,1,'',none,'a',[]]|reject|list
l|select('odd')|list
l|reject('odd')|list
l|select('>', 1)|list
l|select('divisibleby', 2)|list
ls|select('equalto','a')|list
ls|select('in',['a','b'])|list
['a',1]|select('string')|list
rows|selectattr('on')|map(attribute='name')|list
rows|rejectattr('on')|map(attribute='name')|list
rows|selectattr('on','defined')|map(attribute='name')|list
rows|selectattr('v','gt',1)|map(attribute='name')|list
rows|selectattr('name','equalto','x')|list
rows|selectattr('name','==','x')|list|length
rows|rejectattr('in.k','eq','q')|list|length
rows|selectattr|list
l|select('notest')|list
none|select|list
[1,2,3,4,5]|batch(2)|list
[1,2,3,4,5]|batch(2,'-')|list
[]|batch(2)|list
[1,2,3,4,5]|slice(2)|list
[1,2,3,4,5]|slice(3,'-')|list
[1]|slice(0)|list
rows|groupby('in.k')|list
rows|groupby('in.k')|map(attribute='grouper')|list
rows|groupby('in.k')|map('last')|map('length')|list
rows|groupby('on', default=false)|map('first')|list
'a\nb\n\nc'|indent
'a\nb\n\nc'|indent(2)
'a\nb\n\nc'|indent(2,true)
'a\nb\n\nc'|indent(2,blank=true)
'a\nb\n'|indent(2)
'a\nb\r'|indent('> ')
''|indent(2,true)
'a\r\nb'|indent(2)
n|indent
missing|indent
html|escape
html|e
html|e|e
html|forceescape
html|e|forceescape
html|safe
(html|safe) + '<b>'
'<b>' + (html|safe)
(html|safe) ~ '<b>'
html|safe|upper
html|safe|length
html|safe|trim|e
[html|safe]
html|safe is escaped
html is escaped
n|safe
('<'|safe)|string + '<'
'<%s>'|format(1)
'%s %s'|format('a',2)
'%(a)s'|format(a=1)
'%s'|format
'%s'|format(1, a=2)
'a b/c?d=é&'|urlencode
{'a b':'c d','é':1}|urlencode
[('a','b/c')]|urlencode
5|urlencode
'foo bar baz qux'|truncate(9)
'foo bar baz qux'|truncate(9,true)
'foo bar baz qux'|truncate(11)
'foo bar baz qux'|truncate(11,false,'...',0)
'foo bar'|truncate(2)
'ab'|center(7)
'abc'|center(6)
s|wordcount
d|tojson
nested|tojson
nested|tojson(indent=2)
nested|tojson(indent=0)
nested|tojson(indent='--')
[]|tojson(indent=2)
{}|tojson(indent=2)
[[],{}]|tojson(indent=1)
d|tojson(sort_keys=true)
d|tojson(separators=(',',':'))
d|tojson(separators=[',',' : '])
d|tojson(indent=1,separators=('; ',' = '))
u|tojson
u|tojson(ensure_ascii=true)
u|tojson(true)
html|tojson
'a\x00\x1f\x7f\u2028"\\/\b\f\t'|tojson
'a\x00\x1f\x7f'|tojson(ensure_ascii=true)
[1.0,1e100,0.1,-0.0,1e-7,123456789012345680.0]|tojson
['inf'|float,'nan'|float,-('inf'|float)]|tojson
{1:2,none:3,true:4,1.5:5}|tojson
{(1,2):3}|tojson
(1,2)|tojson
missing|tojson
[missing]|tojson
none|tojson
big|tojson
range(3)|tojson
d.items()|tojson
(l|map('string'))|tojson
[1,[2,{'a':(3,)}]]|tojson
html|safe|tojson
big
[big]
big == big
big is integer
big is number
1.0
[1.0, 1e16, 1e-5, 0.0001, 1e15, 123.456, 5e-324, 1.7976931348623157e308]
'it\'s'|list
['it\'s', 'q"q', 'b\'"b', 'n\nt\t\\', '\x00\x7f\x85\u00a0\u200b\u3000é你👋\u00ad']
{'a': {'b': (1,)}}
[missing, none, true]
nested
rows
{'k': html|safe}
range(3)
range(1, 7, 2)
range(5, 0, -2)|list
range(0)|list
range(3)|string
range(1,2,0)
range('a')
range(100001)
range(100000)|length
range(2) == range(0,2)
dict(a=1, b=2)
dict([('a',1)])
dict({'a':1}, b=2)
dict([1])
namespace(a=1).a
namespace({'a':1}, b=2).b
namespace(a=1)
namespace(a=1).zz
namespace(_a=1)
namespace(a=1)['a']
x is defined
s is defined
missing is undefined
nil is none
nil is not none
s is string
n is string
d is mapping
l is mapping
l is sequence
s is sequence
d is sequence
n is sequence
missing is sequence
none is sequence
(l|map('upper')) is sequence
d.items() is sequence
d.keys() is iterable
range(2) is sequence
s is iterable
n is iterable
missing is iterable
none is iterable
(l|map('upper')) is iterable
n is number
true is number
f is number
s is number
n is integer
true is integer
f is integer
f is float
n is float
t is boolean
n is boolean
t is true
no is false
1 is true
n is odd
n is even
f is odd
's' is odd
n is divisibleby 7
n is divisibleby(2)
n is divisibleby 0
'abc' is lower
'ABC' is lower
'ABC' is upper
'' is lower
1 is lower
n is eq 7
n is equalto 7.0
n is == 7
n is ne 8
n is gt 3
n is ge 7
n is lt 3
n is le 7
n is lessthan 8
n is greaterthan 8
n is gt 'a'
1 is in l
9 is in l
9 is not in l
'a' is in 'abc'
none is sameas none
1 is sameas 1
true is sameas true
1 is sameas true
l is sameas l
[] is sameas []
range is callable
s is callable
s.upper is callable
missing is callable
'upper' is filter
'nofilter' is filter
'odd' is test
'no' is test
n is odd and n is gt 3
n is not odd
n is not divisibleby 2
not n is odd
s is string and l is not string
n is odd is even
missing.x is defined
d.zz is defined
d.zz.y is defined
d.a is defined and d.a is number
n is nosuchtest
s is defined()
s|nosuchfilter
s|upper()
s|upper(1)
s|default(1,2,3)
s|trim(nope=1)
s.upper(1)
s.nomethod()
n()
none()
missing()
s()
range
dict
(1, 2,)
[1, 2,]
{'a': 1,}
1,2
s,
('a', 'b')[1]
[x]
-n|abs
(-n)|abs
'a'|upper ~ 'b'|upper
1 + 2|string|length
not n == 7
1 == 1 == true
1 in l == true
2 > 1 and 3 > 2 or z
10 - 2 - 3
2 * 3 % 4
9223372036854775807
9223372036854775808
-9223372036854775808
9223372036854775807|tojson
d == {'b': 2, 'a': 1, 'items': 'shadow', 'C': none}
none is none is defined
'a' if none else missing
'a' if missing is defined else 'b'
s[1:3] ~ s[-2:]
rows|map(attribute='in')|map(attribute='k')|unique|join(',')
l|map('string')|map('length')|sum
"a" "b" 'c'
'\
'
strftime_now('%Y-%m-%d %H:%M:%S')
strftime_now('%d %b %Y, %A %j %% %y %B %e %-d|%Z|%z|%f')
strftime_now('')
strftime_now('é %Y')
strftime_now(1)
raise_exception('boom')
raise_exception(5)
raise_exception()
raise_exception('Zeile é ' ~ s)
""".strip("\n")

STATEMENTS = [
    "a{% if t %}b{% endif %}c",
    "{% if no %}a{% elif n %}b{% else %}c{% endif %}",
    "{% if missing %}a{% else %}b{% endif %}",
    "{% if e %}{% elif z %}{% else %}c{% endif %}",
    "{% for x in l %}{{ x }},{% endfor %}",
    "{% for x in ll %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in missing %}x{% else %}none{% endfor %}",
    "{% for x in none %}x{% endfor %}",
    "{% for x in n %}x{% endfor %}",
    "{% for c in u %}[{{ c }}]{% endfor %}",
    "{% for k in d %}{{ k }};{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, b in [1] %}{% endfor %}",
    "{% for a, b in [(1,2,3)] %}{% endfor %}",
    "{% for (a, b), c in [((1,2),3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, in [(1,)] %}{{ a }}{% endfor %}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}|{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a','b') }}{% endfor %}",
    "{% for x in [1,1,2,2,1] %}{{ loop.changed(x) }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle() }}{% endfor %}",
    "{% for x in l %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    "{% for x in l %}{{ loop.nope }}|{% endfor %}",
    "{% for x in l if x > 1 %}{{ x }}{{ loop.index }}{{ loop.length }}{{ loop.last }};{% endfor %}",
    "{% for x in l if x > 9 %}{{ x }}{% else %}no{% endfor %}",
    "{% for x in l|map('string') %}{{ x }}{{ loop.last }}{{ loop.length }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in [1] %}{% break %}{% else %}else{% endfor %}",
    "{% for x in [1,2] %}{% continue %}{% else %}else{% endfor %}",
    "{% for x in [1,2] %}{% if x == 2 %}{% break %}{% endif %}{% else %}else{% endfor %}",
    "{% break %}",
    "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for x in [1,2] %}{% set y %}a{% break %}{% endset %}{{ y }}{% endfor %}z",
    "{% for x in [1,2] %}{% for y in [3,4] %}{{ x }}{{ y }}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for x in [[1,[2]],[3]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}",
    "{% for x in [1] %}{{ loop([2]) }}{% endfor %}",
    "{% for x in [] recursive %}{% else %}E{% endfor %}",
    "{% for x in [1,2,3] %}{% set q = x %}{% endfor %}{{ q }}",
    "{% set q = 0 %}{% for x in [1,2,3] %}{% set q = q + x %}{{ q }}{% endfor %}{{ q }}",
    "{% set ns = namespace(q=0) %}{% for x in [1,2,3] %}{% set ns.q = ns.q + x %}{% endfor %}{{ ns.q }}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{% set ns.b = ns.a %}{{ ns.b }}{{ ns.c }}",
    "{% set ns._x = 1 %}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% set d.a = 1 %}",
    "{% set missing.a = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a, b = [1] %}",
    "{% set a = 1, 2 %}{{ a }}",
    "{% set a, b = 'xy' %}{{ a }}-{{ b }}",
    "{% set x %}in {{ n }} side{% endset %}[{{ x }}]",
    "{% set x | upper | replace('A','_') %}banana{% endset %}[{{ x }}]",
    "{% set x %}{% set y = 1 %}{% endset %}{{ y }}",
    "{% if t %}{% set x = 5 %}{% endif %}{{ x }}",
    "{% if no %}{% set x = 5 %}{% endif %}{{ x is defined }}",
    "{% if no %}{% set s = 5 %}{% endif %}{{ s }}",
    "{% for x in l %}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}",
    "{% macro m() %}{{ s }}{% endmacro %}{{ m() }}{% set s = 1 %}{{ m() }}",
    "{{ s }}{% set s = 1 %}{{ s }}",
    "{% for x in [1,2] %}{{ s }}{% set s = x %}{{ s }}{% endfor %}{{ s }}",
    "{% for x in [1,2] %}{% for y in [1] %}{{ s }}{% endfor %}{% set s = x %}{% endfor %}",
    "{% for s in l %}{{ s }}{% endfor %}{{ s }}",
    "{% set s = s ~ '!' %}{{ s }}",
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1,5) }}{{ m(a=7,c=8) }}{{ m() }}",
    "{% macro m(a=b, b=1) %}{{ a }}{{ b }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}{{ a }}{{ a is defined }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}x{% endmacro %}{{ m(1,2) }}",
    "{% macro m(a) %}x{% endmacro %}{{ m(zz=1) }}",
    "{% macro m(a) %}x{% endmacro %}{{ m(1,a=1) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1,2,x=3) }}",
    "{% macro m(a) %}{{ a }}{{ varargs|length }}{{ kwargs.z }}{% endmacro %}{{ m(1,2,z=3) }}{{ m(*[4,5],**{'z':6}) }}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}body {{ n }}{% endcall %}",
    "{% macro m(l) %}{% for x in l %}<{{ caller(x) }}>{% endfor %}{% endmacro %}{% call(x) m([1,2]) %}v{{ x }}{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}x{% endmacro %}{% call m() %}b{% endcall %}",
    "{% call s.upper() %}b{% endcall %}",
    "{% call n %}b{% endcall %}",
    "{% macro m(n) %}{% if n > 0 %}{{ n }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(5) }}",
    "{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(5) }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% if t %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}",
    "{% macro m() %}x{% endmacro %}{{ m }}{{ m.name }}{{ m.arguments }}",
    "{% macro m(a, b) %}{% endmacro %}{{ m.arguments }}{{ m.caller }}{{ m.catch_kwargs }}",
    "{% set x = 1 %}{% macro m() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
    "{% for i in [1,2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% filter upper %}abc {{ s }}{% endfilter %}",
    "{% filter replace('a','b')|upper %}banana{% endfilter %}",
    "{% filter indent(2) %}a\nb{% endfilter %}",
    "{% filter length %}abc{% endfilter %}",
    "{% filter nosuch %}x{% endfilter %}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
    "{% with n = 1, m = n %}{{ n }}{{ m }}{% endwith %}",
    "{% print n, 'x' %}",
    "{% generation %}abc{{ n }}{% set g = 1 %}{% endgeneration %}{{ g }}",
    "{% raw %}{{ x }}{% if %}{% endraw %}",
    "a {%- raw -%} {{ x }} {%- endraw -%} b",
    "{# comment {{ x }} #}a{#- c -#} b",
    "a {# x #} b",
    "{% if t and n is odd or no %}y{% endif %}",
    "{% if t: %}y{% endif %}",
    "{% for x in l: %}{{ x }}{% endfor %}",
    "{% for x in 1, 2 %}{{ x }}{% endfor %}",
    "{% for x in l if x is odd %}{{ x }}{% endfor %}",
    "{% for x in (l if t else ll) %}{{ x }}{% endfor %}",
    "{% for m in rows if m.on %}{{ m.name }}{% endfor %}",
    "{% set ns = namespace(f=true) %}{% for x in l if ns.f %}{{ x }}{% set ns.f = false %}{% endfor %}",
    "{% set ns = namespace(f=true) %}{% for x in l if ns.f %}{{ x }}{{ loop.last }}{% set ns.f = false %}{% endfor %}",
    "{% set g = l|map('string') %}{{ g|list }}{{ g|list }}",
    "{% set g = l|map('string') %}{% for x in g %}{{ x }}{% break %}{% endfor %}{{ g|list }}",
    "{% set g = l|map('nofilter') %}ok",
    "{% set g = [1]|reverse %}{{ g|first }}{{ g|list }}",
    "{% if no %}{{ s|nosuch }}{% endif %}ok",
    "{% if t %}{{ s|nosuch }}{% endif %}ok",
    "{{ s|nosuch if no else 'ok' }}",
    "{% if no %}{% for x in l %}{{ x|nosuch }}{% endfor %}{% endif %}ok",
    "{% if no %}{{ s is nosuch }}{% endif %}ok",
    "{% endif %}",
    "{% if t %}",
    "{% for x in l %}{% endif %}",
    "{% nosuch %}",
    "{{ }}",
    "{{ 1",
    "{{ (1 }}",
    "{{ 1) }}",
    "{{ 'a }}",
    "{# a",
    "{% raw %}",
    "{{ a b }}",
    "{{ 1 2 }}",
    "{{ a! }}",
    "{{ $ }}",
    "{{ a..b }}",
    "{{ a[] }}",
    "{{ f(a=1, 2) }}",
    "{{ f(**d, *l) }}",
    "{{ {1, 2} }}",
    "{{ [1 2] }}",
    "{% set 1 = 2 %}",
    "{% set true = 2 %}",
    "{% set x %}",
    "{% for loop in l %}{% endfor %}",
    "{% for x l %}{% endfor %}",
    "{% for x in l %}{% set loop = 1 %}{% endfor %}",
    "{% for x in l %}{% macro m() %}{% set loop = 1 %}{% endmacro %}{% endfor %}",
    "{% for x in l %}{% for a, loop in [] %}{% endfor %}{% endfor %}",
    "{% for x in l %}{% endfor %}{% set loop = 1 %}{{ loop }}",
    "{% for x in l %}{% with loop = 5 %}{{ loop }}{% endwith %}{% endfor %}",
    "{% for x in l %}{% macro m(loop) %}{{ loop }}{% endmacro %}{{ m(4) }}{% endfor %}",
    "{% macro m(v, n) %}{% if v is mapping %}{% for k, w in v.items() %}{% if true %}{{ k ~ (m(w, n + 1)|trim) }}{% endif %}{% endfor %}{% else %}{{ n }}{% endif %}{% endmacro %}{{ m(deep, 0) }}",
    "{% macro %}{% endmacro %}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% if %}{% endif %}",
    "{% set x = %}",
    "{{ x | }}",
    "{{ x is }}",
    "{{ not }}",
    "{{ a.1.b }}",
    "{{ rows.0.name }}",
    "{{ 1.5.real }}",
    "{%set x=1%}{{x}}",
    "{%-set x=1-%} {{-x-}} .",
    "{{ raise_exception('A ' ~ s) }}",
    "{% if no %}{{ raise_exception('A') }}{% endif %}fine",
    "{% set _ = raise_exception('B') if t %}",
    "{{ {'a':1}['a'] }}{{ {'a':{'b':2}}.a.b }}",
    "}}{{ '}}' }}%}",
    "{{ '{{' }}{% raw %}}}{% endraw %}",
    "{{ {'a':{'b':1}}}}",
    "{ { } } {a}",
    "{{ '%}' }}{% if '%}' %}x{% endif %}",
]

WHITESPACE = [
    "a\n{% if t %}\nb\n{% endif %}\nc\n",
    "a\n  {% if t %}\n  b\n  {% endif %}\nc\n\n",
    "a\n  {%+ if t %}\n  b\n  {%+ endif +%}\nc",
    "a  {%- if t -%}  b  {%- endif -%}  c",
    "a\n\n {%- if t %}\n b {% endif -%}\n\n c",
    "  {{ n }}  \n  {{- n -}}  \n  x",
    "  {# c #}\n  b\n{# c #}x",
    "x  {# c #}\n  b {#- c -#}\n y\n{#+ c +#}\nz",
    "{% if t %}  {% endif %}  x",
    "  {% if t %} {% if t %} x {% endif %} {% endif %}",
    "\n{% if t %}\n\n{% endif %}\n",
    "\n\n\n",
    "\n",
    "",
    " ",
    "a\r\nb\rc\n{% if t %}\r\nd{% endif %}\r\n",
    "{{ 'a\r\nb' }}",
    "{%- raw %}\n a \n{% endraw %}\n b",
    "x {% raw -%}\n a \n{%- endraw %}\n b",
    "x\n  {% raw %} a {% endraw %}\n b",
    "x\n  {%+ raw %} a {%+ endraw +%}\n b",
    "\t{% for x in l %}\n\t{{ x }}\n\t{% endfor %}\n",
    "a\u00a0{%- if t %}b{% endif %}",
    "a\n\u00a0{% if t %}b{% endif %}",
    "{% for x in l -%}\n  {{ x }}\n{%- endfor %}\nend",
    "{% set x = 1 %}\n{% set y = 2 %}\n\n{{ x }}{{ y }}\n",
    "a {% set x %} b {% endset %} c [{{ x }}]",
    "{% macro m() %}\n  x\n{% endmacro %}\n[{{ m() }}]",
    "{% macro m() -%}\n  x\n{%- endmacro %}\n[{{ m() }}]",
    "{{ n }}\n\n{{ n }}\n",
    "{{ n -}}\n\n{{ n }}\n ",
    "{%- if t %}x{%- endif %}\n",
    "{% if t +%}\nx{% endif %}",
    "{% if t -%}\n\n{{ n }}{% endif %}",
    "x{% if t %}\n{% endif %}\ny",
    "a{% raw %}",
    "a{#",
    "a{#-",
    "a{{",
    "{% raw %} ",
    "{#\n multi\n line\n#}\n\nx",
    "{%\n if\n t\n %}x{%\nendif\n%}",
]

# Rendered by jinja2, refused by us with a clear error: integers beyond 64 bits in arithmetic, and
# the text of objects whose text holds an address or that nobody prints.
UNSUPPORTED = {
    "{{ -9223372036854775808 }}",
    "{{ range }}",
    "{{ dict }}",
    "{{ d.items }}",
    "{{ '%c' % 'a' }}",
    "{{ 1.5.real }}",
}
