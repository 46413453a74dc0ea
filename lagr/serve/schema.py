"""What goes in and out of the service, as OpenAPI tells it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

# At least one character that is no space, and no NUL.
WORDS = r"^[^\u0000]*[^\s\u0000][^\u0000]*$"
Sentence = Annotated[str, WithJsonSchema({"type": "string", "pattern": WORDS, "examples": ["Ida sang ."]})]

# JSON doesn't tell 3.0 from 3.
Whole = Annotated[int, BeforeValidator(lambda x: int(x) if isinstance(x, float) and x.is_integer() else x)]


class Sentences(BaseModel):
    """One sentence or many, and what to say of them."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "oneOf": [
                {"required": ["text"], "properties": {"text": {"type": "string"}, "texts": {"type": "null"}}},
                {"required": ["texts"], "properties": {"texts": {"type": "array"}, "text": {"type": "null"}}},
            ]
        },
    )
    text: Sentence | None = Field(None, description="a sentence, with at least one word")
    texts: list[Sentence] | None = Field(None, description="many sentences, instead of one")
    alternatives: Whole = Field(0, ge=0, le=10, description="how many of the likeliest labels of each slot and edge")
    svg: bool = Field(False, description="also draw the graph over its sentence")

    @model_validator(mode="after")
    def one_or_many(self) -> Sentences:
        if (self.text is None) == (self.texts is None):
            raise ValueError("give a sentence as text, or many as texts")
        return self

    @property
    def given(self) -> list[str]:
        return [self.text] if self.text is not None else self.texts or []


class Node(BaseModel):
    label: str
    slot: int
    token: int = Field(description="the position of the word it belongs to")
    layer: int
    probability: float


class Edge(BaseModel):
    source: int = Field(description="the number of a node")
    label: str
    target: int
    probability: float


class Choice(BaseModel):
    label: str | None = Field(description="null: nothing is there")
    probability: float


class Alternatives(BaseModel):
    slots: list[list[Choice]] = Field(description="of every slot, empty ones too, the likeliest labels")
    edges: list[list[Choice]] = Field(description="of every edge, in the order of the edges")
    edges_together: bool = Field(description="edges were chosen to fit each other, and not each by itself")


class Parsed(BaseModel):
    tokens: list[str]
    unknown: list[int] = Field(description="the positions of tokens that training has not seen")
    form: str | None = Field(description="the logical form or query; null where there is none")
    problem: str | None = Field(description="why there is no form or no graph")
    abstained: bool = Field(description="there is no answer, since it would be too improbable")
    probability: float = Field(description="of the whole graph")
    graph_layers: int
    nodes: list[Node]
    edges: list[Edge]
    graph: dict[str, Any] | None = Field(None, description="instead of nodes and edges, of a parser that writes forms")
    alternatives: Alternatives | None = None
    svg: str | None = Field(None, description="null where there is nothing to draw, or too much")


class Parses(BaseModel):
    parses: list[Parsed] = Field(description="one for each sentence, in their order")


class Question(BaseModel):
    """A question, and what to say of its parse."""

    model_config = ConfigDict(extra="forbid", strict=True)
    text: Sentence = Field(description="a question", examples=["Did Ridley Scott direct Alien?"])
    alternatives: Whole = Field(0, ge=0, le=10, description="how many of the likeliest labels of each slot and edge")
    svg: bool = Field(False, description="also draw the graph over its sentence")


class Other(BaseModel):
    iri: str
    question: str = Field(description="the same question, about this one")


class Named(BaseModel):
    name: str
    iri: str
    others: list[Other] = Field(description="further things of that name")


class Term(BaseModel):
    kind: Literal["uri", "literal", "bnode"]
    value: str
    name: str | None = Field(description="of a thing, where the table of names has it")


class Answered(BaseModel):
    question: str
    tokens: list[str] = Field(description="what was parsed: the question with placeholders for names")
    names: dict[str, Named] = Field(description="what the placeholders stand for")
    probability: float = Field(description="of the whole graph")
    query: str = Field(description="the query that was predicted")
    sparql: str = Field(description="the same in standard SPARQL, as it was run")
    answer: bool | list[Term] = Field(description="of a yes/no question, true or false; of any other, the answers")
    more: bool = Field(description="there are more answers than are given")
    notes: list[str] = Field(description="what the one who asks should know")
    parse: Parsed


class Problem(BaseModel):
    detail: str = Field(description="one line that says what is wrong")


class Health(BaseModel):
    status: str
    lagr: str = Field(description="the version")
    waiting: int = Field(description="sentences that wait for the model")


class Info(BaseModel):
    run: str
    formalism: str | None
    graph_layers: int
    can: list[str] = Field(description="what this service can do")
    examples: list[str]
    limits: dict[str, float]
