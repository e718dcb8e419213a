/* ir_parse.c - parses expressions: a small recursive-descent parser with C's precedences.
 *
 *   choice  = or ['?' choice ':' choice]
 *   or      = and {'||' and}            and   = compare {'&&' compare}
 *   compare = sum [('=='|'!='|'<'|'<='|'>'|'>=') sum]
 *   sum     = product {('+'|'-') product}
 *   product = unary {('*'|'/') unary}
 *   unary   = ('-'|'!') unary | number | name | name '(' choice {',' choice} ')' | '(' choice ')'
 *
 * Each function returns the node of what it has parsed, or -1.
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

static int parse_choice(parser *p);

static int fail_parse(parser *p, const char *what) {
    if (!p->b->error[0])
        snprintf(p->b->error, sizeof p->b->error, "%s at '%.20s' in '%.100s'", what, p->at,
                 p->text);
    return -1;
}

static void skip_space(parser *p) {
    while (gd_is_space(*p->at)) p->at++;
}

static bool accept_token(parser *p, const char *token) {
    skip_space(p);
    size_t n = strlen(token);
    if (strncmp(p->at, token, n) != 0) return false;
    /* '<' must not take the first half of '<=' */
    if (n == 1 && strchr("<>!=", *token) && p->at[1] == '=') return false;
    p->at += n;
    return true;
}

static int apply_binary(parser *p, const char *prim, int a, int b) {
    return a < 0 || b < 0 ? -1 : gd_ir_apply(p->b, prim, a, b, -1);
}

static int parse_call(parser *p, const char *name, size_t length) {
    int args[3] = {-1, -1, -1}, n = 0;
    do {
        if (n == 3) return fail_parse(p, "too many arguments");
        if ((args[n++] = parse_choice(p)) < 0) return -1;
    } while (accept_token(p, ","));
    if (!accept_token(p, ")")) return fail_parse(p, "expected ')'");
    int prim = gd_prim_find(name, length);
    if (prim < 0) return fail_parse(p, "no such function");
    if (gd_prims[prim].arity != n) return fail_parse(p, "wrong number of arguments");
    return gd_ir_apply(p->b, gd_prims[prim].name, args[0], args[1], args[2]);
}

static int parse_unary(parser *p) {
    if (accept_token(p, "-")) {
        int a = parse_unary(p);
        return a < 0 ? -1 : gd_ir_apply(p->b, "neg", a, -1, -1);
    }
    if (accept_token(p, "!")) {
        int a = parse_unary(p);
        return a < 0 ? -1 : gd_ir_apply(p->b, "logical_not", a, -1, -1);
    }
    if (accept_token(p, "(")) {
        int a = parse_choice(p);
        if (a >= 0 && !accept_token(p, ")")) return fail_parse(p, "expected ')'");
        return a;
    }
    skip_space(p);
    if (gd_is_digit(*p->at) || *p->at == '.') {
        char *end;
        double value = gd_double_parse(p->at, &end);
        p->at = end;
        return gd_ir_const(p->b, value);
    }
    const char *name = p->at;
    while (gd_is_alnum(*p->at) || *p->at == '_') p->at++;
    size_t length = (size_t)(p->at - name);
    if (length == 0) return fail_parse(p, "expected a value");
    if (accept_token(p, "(")) return parse_call(p, name, length);
    if (length == 3 && memcmp(name, "inf", 3) == 0) return gd_ir_const(p->b, INFINITY);
    if (length == 3 && memcmp(name, "nan", 3) == 0) return gd_ir_const(p->b, NAN);
    if (length == 2 && memcmp(name, "pi", 2) == 0) return gd_ir_const(p->b, 3.14159265358979323846);
    int node = p->lookup(p->b, p->context, name, length);
    if (node < 0) {
        p->at = name;
        return fail_parse(p, "unknown name");
    }
    return node;
}

static int parse_product(parser *p) {
    int a = parse_unary(p);
    while (a >= 0) {
        if (accept_token(p, "*")) a = apply_binary(p, "mul", a, parse_unary(p));
        else if (accept_token(p, "/")) a = apply_binary(p, "div", a, parse_unary(p));
        else break;
    }
    return a;
}

static int parse_sum(parser *p) {
    int a = parse_product(p);
    while (a >= 0) {
        if (accept_token(p, "+")) a = apply_binary(p, "add", a, parse_product(p));
        else if (accept_token(p, "-")) a = apply_binary(p, "sub", a, parse_product(p));
        else break;
    }
    return a;
}

static int parse_compare(parser *p) {
    static const char *const signs[][2] = {{"==", "eq"}, {"!=", "ne"}, {"<=", "le"},
                                           {">=", "ge"}, {"<", "lt"},  {">", "gt"}};
    int a = parse_sum(p);
    for (int i = 0; a >= 0 && i < 6; i++)
        if (accept_token(p, signs[i][0])) return apply_binary(p, signs[i][1], a, parse_sum(p));
    return a;
}

static int parse_and(parser *p) {
    int a = parse_compare(p);
    while (a >= 0 && accept_token(p, "&&")) a = apply_binary(p, "logical_and", a, parse_compare(p));
    return a;
}

static int parse_or(parser *p) {
    int a = parse_and(p);
    while (a >= 0 && accept_token(p, "||")) a = apply_binary(p, "logical_or", a, parse_and(p));
    return a;
}

static int parse_choice(parser *p) {
    if (++p->depth > MAX_DEPTH) return fail_parse(p, "nested too deeply");
    int a = parse_or(p);
    if (a >= 0 && accept_token(p, "?")) {
        int yes = parse_choice(p);
        if (yes >= 0 && !accept_token(p, ":")) return fail_parse(p, "expected ':'");
        int no = yes < 0 ? -1 : parse_choice(p);
        a = no < 0 ? -1 : gd_ir_apply(p->b, "where", a, yes, no);
    }
    p->depth--;
    return a;
}

int gd_ir_parse(gd_ir_builder *b, const char *text, gd_ir_lookup lookup, void *context) {
    parser p = {b, text, text, lookup, context, 0};
    int node = parse_choice(&p);
    skip_space(&p);
    if (node >= 0 && *p.at) return fail_parse(&p, "did not expect this");
    return node;
}
