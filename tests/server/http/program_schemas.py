"""JSON schemas as programs send them: what OpenAI's Python package makes of pydantic's models, for tools and for
answers. The models are written here by hand, or drawn by a seed from the kinds of fields that programs use.
"""

import datetime
import enum
import ipaddress
import random
import typing
import uuid


class Color(str, enum.Enum):
    RED = "red"
    GREEN = "green"
    INFRARED = "infra-red \"940\""


def written(pydantic):
    """Models by hand: records, optional fields, recursion, tagged unions, maps, tuples, formats, bounds."""
    Base, Field = pydantic.BaseModel, pydantic.Field

    class Step(Base):
        explanation: str
        output: str

    class Reasoning(Base):
        steps: list[Step]
        final_answer: str

    class Event(Base):
        name: str
        date: datetime.date
        at: typing.Optional[datetime.time] = None
        participants: list[str]

    class Node(Base):
        value: int
        children: list["Node"]

    class Linked(Base):
        text: str
        next: typing.Optional["Linked"] = None

    class Cat(Base):
        kind: typing.Literal["cat"]
        lives: int = Field(ge=1, le=9)

    class Dog(Base):
        kind: typing.Literal["dog"]
        good: bool

    class Pet(Base):
        pet: typing.Annotated[typing.Union[Cat, Dog], Field(discriminator="kind")]
        color: Color

    class Element(Base):
        type: typing.Literal["div", "button", "header", "section", "field", "form"]
        label: str
        children: list["Element"]
        attributes: list[Step]

    class Address(Base):
        street: str = Field(min_length=1, max_length=40)
        zip: str = Field(pattern=r"^\d{5}(-\d{4})?$")
        host: ipaddress.IPv4Address

    class Order(Base):
        id: uuid.UUID
        placed: datetime.datetime
        total: float = Field(gt=0, lt=1000.5)
        addresses: list[Address] = Field(min_length=1, max_length=2)
        notes: dict[str, int]
        status: typing.Literal["open", "paid", 3, None]

    class Point(Base):
        xy: tuple[float, float]
        tag: typing.Union[int, str, None]

    class Nothing(Base):
        pass

    return [Step, Reasoning, Event, Node, Linked, Pet, Element, Address, Order, Point, Nothing]


def drawn_type(pydantic, draw, models, depth):
    Field = pydantic.Field
    low = draw.randrange(-50, 50)
    plain = [
        str, int, float, bool, datetime.date, datetime.time, datetime.datetime, uuid.UUID, ipaddress.IPv4Address, Color,
        typing.Literal["a", "ab", "b\n", "\u00e9t\u00e9"], typing.Literal[1, 10, 2], typing.Optional[int],
        typing.Union[int, str, None], typing.Annotated[int, Field(ge=low, le=low + draw.randrange(200))],
        typing.Annotated[int, Field(gt=low)], typing.Annotated[float, Field(ge=0, lt=1)],
        typing.Annotated[str, Field(max_length=draw.randrange(1, 30))],
        typing.Annotated[str, Field(min_length=2, max_length=5)],
        typing.Annotated[str, Field(pattern=draw.choice([r"^[A-Z]{2,3}-\d+$", r"^(yes|no|maybe)$", r"^#[0-9a-f]{6}$"]))],
    ]
    kind = draw.randrange(10)
    if depth > 0 and kind < 2:
        return list[drawn_type(pydantic, draw, models, depth - 1)]
    if depth > 0 and kind == 2:
        inner = drawn_type(pydantic, draw, models, depth - 1)
        return typing.Annotated[list[inner], Field(min_length=1, max_length=3)]
    if depth > 0 and kind == 3:
        return dict[str, drawn_type(pydantic, draw, models, 0)]
    if depth > 0 and kind == 4 and models:
        return draw.choice(models)
    if depth > 0 and kind == 5 and models:
        return typing.Optional[draw.choice(models)]
    return draw.choice(plain)


def drawn(pydantic, draw, index, models):
    fields = {}
    for i in range(draw.randrange(1, 7)):
        name = draw.choice(["name", "id", "when", "items", "x", "the value", "\u00fcber", "size"]) + str(i)
        kind = drawn_type(pydantic, draw, models[-3:], 2)
        fields[f"f{i}"] = (kind, pydantic.Field(alias=name) if draw.randrange(3) else pydantic.Field(default=None, alias=name))
    return pydantic.create_model(f"Drawn{index}", __doc__="A record.", **fields)


def make(openai, pydantic, count):
    """The schemas of `count` models, by the ways in which the package sends them in turn."""
    from openai.lib._parsing._completions import type_to_response_format_param
    draw = random.Random(17)
    models = written(pydantic)
    while len(models) < count:
        models.append(drawn(pydantic, draw, len(models), models[11:]))
    schemas = []
    for i, model in enumerate(models):
        if i % 3 == 0:
            schemas.append(openai.pydantic_function_tool(model)["function"]["parameters"])
        elif i % 3 == 1:
            schemas.append(type_to_response_format_param(model)["json_schema"]["schema"])
        else:
            schemas.append(model.model_json_schema())
    return schemas
