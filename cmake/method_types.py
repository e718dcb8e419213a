"""Prints the types of the methods of Tensor: those of the generator, and those of _torch_methods.py in their place.

    python3 method_types.py python_methods.pyi _torch_methods.py > methods.pyi
"""
import ast
import re
import sys


def signature(function):
    """The arguments of a function with the type Any, and its own type of result."""
    a, parts = function.args, []
    optional = len(a.args) - len(a.defaults)
    for i, arg in enumerate(a.args):
        parts.append(arg.arg if i == 0 else f"{arg.arg}: Any" + (" = ..." if i >= optional else ""))
    if a.vararg:
        parts.append(f"*{a.vararg.arg}: Any")
    elif a.kwonlyargs:
        parts.append("*")
    for arg, default in zip(a.kwonlyargs, a.kw_defaults):
        parts.append(f"{arg.arg}: Any" + (" = ..." if default else ""))
    if a.kwarg:
        parts.append(f"**{a.kwarg.arg}: Any")
    result = ast.unparse(function.returns)
    return f"({', '.join(parts)}) -> {'builtins.bool' if result == '_bool' else result}: ..."


def main():
    generated, source = (open(path).read() for path in sys.argv[1:3])
    methods, constants = {}, {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            changed = any(isinstance(d, ast.Name) and d.id == "_random" for d in node.decorator_list)
            methods[node.name] = "(self, *args: Any, **names: Any) -> Tensor: ..." if changed else signature(node)
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("_ALSO", "_WRITTEN"):
            constants[node.targets[0].id] = ast.literal_eval(node.value)
    for name, of in constants["_ALSO"].items():
        methods[name] = methods[of]
    for name in constants["_WRITTEN"]:
        methods[name + "_"] = "(self, *args: Any, **names: Any) -> Tensor: ..."
    for block in re.findall(r"(?:    @overload\n)?    def \w+\(.*\n", generated):
        if re.search(r"def (\w+)", block).group(1) not in methods:
            print(block, end="")
    for name, types in methods.items():
        print(f"    def {name}{types}")


main()
