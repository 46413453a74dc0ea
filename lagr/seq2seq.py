"""The baselines: a form written token by token, each with a look at the sentence and at what is written already.

    p(y | x) = ∏_t p(y_t | y_1 … y_{t-1}, x)

Sizes as in model.py, and T tokens of a form. Form token 0, END, ends a form; it also stands before the first token and
fills what is left of a row. As in encoders.py, the first axis of every weight counts models side by side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lagr.chance import dropout, scramble
from lagr.encoders import (
    LSTM,
    Affine,
    Embedding,
    LSTMLayer,
    LSTMState,
    Norm,
    Transformer,
    are_present,
    by_head,
    mix,
    normalised_sum,
    rectified,
)
from lagr.model import aligned, log_softmax

END = 0


class Cache:
    """Keys and values of all that is written, in a table that doubles when it is full: a step writes one token's."""

    def __init__(self) -> None:
        self.table, self.length = torch.empty(0), 0

    def extended(self, new: Tensor) -> Tensor:
        """Those so far, with the next token's (2, W, B, heads, 1, d) at the end."""
        if self.length == 0:
            self.table = new.repeat_interleave(16, dim=-2)
        elif self.length == self.table.shape[-2]:
            self.table = torch.cat([self.table, self.table], dim=-2)
        self.table[..., self.length, :] = new[..., 0, :]
        self.length += 1
        return self.table[..., : self.length, :]


class DecoderLayer(nn.Module):
    """Attention to what is written, attention to the sentence, a feed-forward part; post-norm, as in the encoder."""

    def __init__(self, copies: int, width: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout

        def projection(outputs: int) -> Affine:
            new = Affine(copies, width, outputs, bias=False)
            new.xavier(blocks=outputs // width)
            return new

        self.attend, self.attended = projection(3 * width), projection(width)
        self.ask, self.recall, self.recalled = projection(width), projection(2 * width), projection(width)
        self.widen, self.narrow = Affine(copies, width, feedforward), Affine(copies, feedforward, width)
        self.widen.xavier(gain=math.sqrt(2))
        self.narrow.xavier()
        self.attention_norm, self.sentence_norm = Norm(copies, width), Norm(copies, width)
        self.feedforward_norm = Norm(copies, width)

    def forward(self, x: Tensor, sentence: Tensor, present: Tensor, cache: Cache | None, keys: Tensor | None) -> Tensor:
        """x (W, B, T, D): all that is written or, with a cache of what stands before it, one token.

        sentence (2, W, B, heads, N, d): its keys and values; present: which of them are.
        """
        drop, projected = self.dropout, by_head(self.attend(x), 3, self.heads)
        if cache is None:
            (query, key, value), visible = projected, _not_later(x)
        else:
            query, (key, value), visible = projected[0], cache.extended(projected[1:]), None
        mixed = mix(query, key, value, visible, keys, drop, site=0)
        x = normalised_sum(x, self.attended(mixed), None, self.attention_norm, keys, drop, site=1)
        mixed = mix(by_head(self.ask(x), 1, self.heads)[0], sentence[0], sentence[1], present, keys, drop, site=2)
        x = normalised_sum(x, self.recalled(mixed), None, self.sentence_norm, keys, drop, site=3)
        hidden = rectified(self.widen.product(x), self.widen.bias, keys, drop, site=4)
        narrow = self.narrow
        return normalised_sum(x, narrow.product(hidden), narrow.bias, self.feedforward_norm, keys, drop, site=5)


def _not_later(x: Tensor) -> Tensor:
    """Which places a place may look at: its own and those before.   (T, T)"""
    place = torch.arange(x.shape[2], device=x.device)
    return place[:, None] <= place


@dataclass
class Attended:
    """What a Transformer decoder looks at: keys and values of the sentence in each layer, and of what is written."""

    sentence: list[Tensor]  # (2, W, B, heads, N, d) each
    present: Tensor  # (W, B, 1, N, 1)
    written: list[Cache] | None  # None: all is written at once


class TransformerDecoder(nn.Module):
    def __init__(
        self, copies: int, width: int, layers: int, heads: int, feedforward: int, dropout: float, shared: bool = False
    ) -> None:
        super().__init__()
        self.depth, self.heads = layers, heads
        self.layers = nn.ModuleList(
            DecoderLayer(copies, width, heads, feedforward, dropout) for _ in range(1 if shared else layers)
        )

    def begin(self, encoded: Tensor, lengths: Tensor, one_by_one: bool = False) -> Attended:
        """one_by_one: tokens will come one at a time."""
        sentence = [by_head(layer.recall(encoded), 2, self.heads).contiguous() for layer in self.layers]  # type: ignore[operator]
        present = are_present(lengths, encoded.shape[2])[:, :, None, :, None]
        return Attended(sentence, present, [Cache() for _ in range(self.depth)] if one_by_one else None)

    def forward(self, x: Tensor, state: Attended, keys: Tensor | None) -> Tensor:
        """The next T tokens in context, all at once. keys (layers, W)   (W, B, T, D) → (W, B, T, D)"""
        for number in range(self.depth):
            at, key = number % len(self.layers), None if keys is None else keys[number]
            cache = state.written[number] if state.written else None
            x = self.layers[at](x, state.sentence[at], state.present, cache, key)
        return x

    def compile_parts(self) -> None:
        for layer in self.layers:
            layer.compile(dynamic=False)


@dataclass
class Remembered:
    """What an LSTM decoder looks at: the sentence, and the states of its layers after the last token."""

    sentence: Tensor  # (W, B, 1, N, D)
    present: Tensor  # (W, B, 1, N, 1)
    layers: list[LSTMState]


class LSTMDecoder(nn.Module):
    """LSTM layers; what the top one says is joined with what it then finds in the sentence.

    h = LSTM(y);  α = softmax(h Q Hᵀ / √D);  a = tanh([α H ; h] C)   (Luong et al. 2015, whose a is also fed back)
    States and cells start from tanh(h A + b), where h are the encoder's last states.
    """

    def __init__(self, copies: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.first = Affine(copies, width, 2 * layers * width)
        self.layers = nn.ModuleList(LSTMLayer(copies, width, directions=1) for _ in range(layers))
        self.ask, self.combine = (
            Affine(copies, width, width, bias=False),
            Affine(copies, 2 * width, width, bias=False),
        )

    def begin(self, encoded: Tensor, lengths: Tensor, one_by_one: bool = False) -> Remembered:
        half = encoded.shape[-1] // 2
        # Each direction of the encoder ends at one end; its state stands still on padding.
        ends = torch.cat([encoded[:, :, -1, :half], encoded[:, :, 0, half:]], dim=-1)
        states = torch.tanh(self.first(ends))[:, None].chunk(2 * len(self.layers), dim=-1)
        cells = [state.float() for state in states[1::2]]  # sums over many steps
        present = are_present(lengths, encoded.shape[2])[:, :, None, :, None]
        return Remembered(encoded[:, :, None], present, list(zip(states[::2], cells, strict=True)))

    def forward(self, x: Tensor, state: Remembered, keys: Tensor | None) -> Tensor:
        """The next T tokens in context. keys (layers, W)   (W, B, T, D) → (W, B, T, D)"""
        W, B, T, _ = x.shape
        lengths = torch.full((W, B), T, device=x.device)  # nothing after the end of a form is looked at
        for number, layer in enumerate(self.layers):
            x, state.layers[number] = layer(x, lengths, state.layers[number])
            x = self.drop(x, None if keys is None else keys[number], site=0)
        return self.look(x, state.sentence, state.present, None if keys is None else keys[-1])

    def look(self, x: Tensor, sentence: Tensor, present: Tensor, keys: Tensor | None) -> Tensor:
        mixed = mix(self.ask(x)[:, :, None], sentence, sentence, present, None, 0.0, site=0)
        return self.drop(torch.tanh(self.combine(torch.cat([mixed, x], dim=-1))), keys, site=1)

    def drop(self, x: Tensor, keys: Tensor | None, site: int) -> Tensor:
        return dropout(x, self.dropout, keys, site)

    def compile_parts(self) -> None:
        for name in ("drop", "look"):
            setattr(self, name, torch.compile(getattr(self, name), dynamic=False))


class Seq2Seq(nn.Module):
    """Sentences → forms, token by token. The vectors of form tokens score them too (tied, as in the cited models)."""

    def __init__(
        self,
        words: int,
        form_tokens: int,
        *,
        encoder: str = "transformer",
        width: int = 256,
        encoder_layers: int = 4,
        decoder_layers: int = 0,
        heads: int = 4,
        feedforward: int = 0,
        dropout: float = 0.1,
        shared_layers: bool = False,
        longest_form: int = 512,
    ) -> None:
        super().__init__()
        self.form_tokens, self.longest_form = form_tokens, longest_form
        self.encoder_layers, self.decoder_layers = encoder_layers, decoder_layers or encoder_layers
        transformer, count = encoder == "transformer", aligned(form_tokens)  # the excess is never read
        self.embed = Embedding(words, width, dropout, positions=transformer)
        self.embed_form = Embedding(count, width, dropout, positions=transformer)
        self.bias = nn.Parameter(torch.zeros(1, 1, count))
        if transformer:
            sizes = (heads, feedforward or width, dropout)
            self.encode: LSTM | Transformer = Transformer(1, width, encoder_layers, *sizes, shared=shared_layers)
            self.decode: LSTMDecoder | TransformerDecoder = TransformerDecoder(
                1, width, self.decoder_layers, *sizes, shared=shared_layers
            )
        else:
            self.encode = LSTM(1, width, encoder_layers, dropout)
            self.decode = LSTMDecoder(1, width, self.decoder_layers, dropout)

    def forward(self, tokens: Tensor, lengths: Tensor, form: Tensor, keys: Tensor | None = None) -> Tensor:
        """log p(y_t | y_1 … y_{t-1}, x) of the tokens of given forms, END included.   (S, B, T)

        tokens (S, B, N), lengths (S, B), form (S, B, T); keys (S,): what dropout draws from, if there is any.
        """
        of_words, of_form, of_encoder, of_decoder = self.keys_of_parts(keys)
        encoded = self.encode(self.embed(tokens, of_words), lengths, of_encoder)
        before = F.pad(form[..., :-1], (1, 0), value=END)
        hidden = self.decode(self.embed_form(before, of_form), self.decode.begin(encoded, lengths), of_decoder)
        return self.score_of(hidden, form)

    def score_of(self, hidden: Tensor, form: Tensor) -> Tensor:
        """log p of these tokens as the next ones.   (S, B, T, D), (S, B, T) → (S, B, T)"""
        return self.score(hidden).gather(-1, form[..., None]).squeeze(-1)

    def score(self, hidden: Tensor) -> Tensor:
        """log p of every form token as the next one.   (S, B, T, D) → (S, B, T, form tokens)"""
        S, B, T, D = hidden.shape
        logits = torch.bmm(hidden.reshape(S, B * T, D), self.embed_form.words.transpose(1, 2)) + self.bias
        return log_softmax(logits.view(S, B, T, -1)[..., : self.form_tokens])

    def write(self, tokens: Tensor, lengths: Tensor, longest: int = 0) -> tuple[Tensor, Tensor]:
        """The form that takes the likeliest token every time (S, B, T), and its log p (S, B).

        Ends when all forms have ended, or after `longest` tokens (the configuration's longest_form, if not given).
        """
        state = self.decode.begin(self.encode(self.embed(tokens, None), lengths, None), lengths, one_by_one=True)
        token = tokens.new_full((*lengths.shape, 1), END)
        ended, total = torch.zeros_like(lengths, dtype=torch.bool), torch.zeros_like(lengths, dtype=torch.float32)
        written = []
        for position in range(longest or self.longest_form):
            scores = self.score(self.decode(self.embed_form(token, None, position), state, None))
            best, token = scores.max(-1)
            total += torch.where(ended, 0.0, best[..., 0])
            token = token.masked_fill(ended[..., None], END)
            written.append(token)
            ended = ended | (token[..., 0] == END)
            if bool(ended.all()):
                break
        return torch.cat(written, dim=-1), total

    def keys_of_parts(self, keys: Tensor | None) -> tuple[Tensor | None, ...]:
        """Keys (S,) of the words and of the form's tokens, and (layers, S) of the encoder and of the decoder."""
        if keys is None:
            return None, None, None, None
        count = 2 + self.encoder_layers + self.decoder_layers
        parts = scramble(keys + torch.arange(1, 1 + count, dtype=torch.int32, device=keys.device)[:, None])
        return parts[0], parts[1], parts[2 : 2 + self.encoder_layers], parts[2 + self.encoder_layers :]

    def compile_parts(self, tokens: int) -> None:
        """Compiles what has no kernels of its own, for sentences of up to so many tokens."""
        self.encode.compile_parts(tokens)
        self.decode.compile_parts()
        for part in (self.embed, self.embed_form):
            part.compile(dynamic=False)
        for name in ("keys_of_parts", "score_of"):
            setattr(self, name, torch.compile(getattr(self, name), dynamic=False))


def form_loss(log_probs: Tensor, form: Tensor) -> Tensor:
    """−log p of a form's token, END included, mean over all tokens of a model's batch.   (S, B, T) twice → (S,)"""
    real = are_present((form != END).sum(-1) + 1, form.shape[-1])
    return -(log_probs * real).sum((1, 2)) / real.sum((1, 2))
