/* ir_parse.c - expressions as text: a small recursive-descent parser with C's precedences.
 *
 *   choice  = or ['?' choice ':' choice]
 *   or      = and {'||' and}            and   = compare {'&&' compare}
 *   compare = sum [('=='|'!='|'<'|'<='|'>'|'>=') sum]
 *   sum     = product {('+'|'-') product}
 *   product = unary {('*'|'/') unary}
 *   unary   = ('-'|'!') unary | number | name | name '(' choice {',' choice} ')' | '(' choice ')'
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/ir.h"
#include "core/ascii.h"
#include "core/number.h"

enum { MAX_DEPTH = 100 };

typedef struct {
    gd_ir_builder *b;
    const char *text, *at;
    gd_ir_lookup lookup;
    void *context;
    int depth;
} parser;

static int choice(parser *p);

static int complain(parser *p, const char *what) {
    if (!p->b->error[0])
        snprintf(p->b->error, sizeof p->b->error, "%s at '%.20s' in '%.100s'", what, p->at,
                 p->text);
    return -1;
}

static void space(parser *p) {
    while (gd_is_space(*p->at)) p->at++;
}

static bool accept(parser *p, const char *token) {
    space(p);
    size_t n = strlen(token);
    if (strncmp(p->at, token, n) != 0) return false;
    /* '<' must not take the first half of '<=' */
    if (n == 1 && strchr("<>!=", *token) && p->at[1] == '=') return false;
    p->at += n;
    return true;
}

static int binary(parser *p, const char *prim, int a, int b) {
    return a < 0 || b < 0 ? -1 : gd_ir_apply(p->b, prim, a, b, -1);
}

static int call(parser *p, const char *name, size_t length) {
    int args[3] = {-1, -1, -1}, n = 0;
    do {
        if (n == 3) return complain(p, "too many arguments");
        if ((args[n++] = choice(p)) < 0) return -1;
    } while (accept(p, ","));
    if (!accept(p, ")")) return complain(p, "expected ')'");
    int prim = gd_prim_find(name, length);
    if (prim < 0) return complain(p, "no such function");
    if (gd_prims[prim].arity != n) return complain(p, "wrong number of arguments");
    return gd_ir_apply(p->b, gd_prims[prim].name, args[0], args[1], args[2]);
}

static int unary(parser *p) {
    if (accept(p, "-")) {
        int a = unary(p);
        return a < 0 ? -1 : gd_ir_apply(p->b, "neg", a, -1, -1);
    }
    if (accept(p, "!")) {
        int a = unary(p);
        return a < 0 ? -1 : gd_ir_apply(p->b, "logical_not", a, -1, -1);
    }
    if (accept(p, "(")) {
        int a = choice(p);
        if (a >= 0 && !accept(p, ")")) return complain(p, "expected ')'");
        return a;
    }
    space(p);
    if (gd_is_digit(*p->at) || *p->at == '.') {
        char *end;
        double value = gd_double_parse(p->at, &end);
        p->at = end;
        return gd_ir_const(p->b, value);
    }
    const char *name = p->at;
    while (gd_is_alnum(*p->at) || *p->at == '_') p->at++;
    size_t length = (size_t)(p->at - name);
    if (length == 0) return complain(p, "expected a value");
    if (accept(p, "(")) return call(p, name, length);
    if (length == 3 && memcmp(name, "inf", 3) == 0) return gd_ir_const(p->b, INFINITY);
    if (length == 3 && memcmp(name, "nan", 3) == 0) return gd_ir_const(p->b, NAN);
    if (length == 2 && memcmp(name, "pi", 2) == 0) return gd_ir_const(p->b, 3.14159265358979323846);
    int node = p->lookup(p->b, p->context, name, length);
    if (node < 0) {
        p->at = name;
        return complain(p, "unknown name");
    }
    return node;
}

static int product(parser *p) {
    int a = unary(p);
    while (a >= 0) {
        if (accept(p, "*")) a = binary(p, "mul", a, unary(p));
        else if (accept(p, "/")) a = binary(p, "div", a, unary(p));
        else break;
    }
    return a;
}

static int sum(parser *p) {
    int a = product(p);
    while (a >= 0) {
        if (accept(p, "+")) a = binary(p, "add", a, product(p));
        else if (accept(p, "-")) a = binary(p, "sub", a, product(p));
        else break;
    }
    return a;
}

static int compare(parser *p) {
    static const char *const signs[][2] = {{"==", "eq"}, {"!=", "ne"}, {"<=", "le"},
                                           {">=", "ge"}, {"<", "lt"},  {">", "gt"}};
    int a = sum(p);
    for (int i = 0; a >= 0 && i < 6; i++)
        if (accept(p, signs[i][0])) return binary(p, signs[i][1], a, sum(p));
    return a;
}

static int both(parser *p) {
    int a = compare(p);
    while (a >= 0 && accept(p, "&&")) a = binary(p, "logical_and", a, compare(p));
    return a;
}

static int either(parser *p) {
    int a = both(p);
    while (a >= 0 && accept(p, "||")) a = binary(p, "logical_or", a, both(p));
    return a;
}

static int choice(parser *p) {
    if (++p->depth > MAX_DEPTH) return complain(p, "nested too deeply");
    int a = either(p);
    if (a >= 0 && accept(p, "?")) {
        int yes = choice(p);
        if (yes >= 0 && !accept(p, ":")) return complain(p, "expected ':'");
        int no = yes < 0 ? -1 : choice(p);
        a = no < 0 ? -1 : gd_ir_apply(p->b, "where", a, yes, no);
    }
    p->depth--;
    return a;
}

int gd_ir_parse(gd_ir_builder *b, const char *text, gd_ir_lookup lookup, void *context) {
    parser p = {b, text, text, lookup, context, 0};
    int node = choice(&p);
    space(&p);
    if (node >= 0 && *p.at) return complain(&p, "did not expect this");
    return node;
}
