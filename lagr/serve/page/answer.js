// The answer to a question. Whatever comes from outside is set as text, never as HTML.

const at = (id) => document.getElementById(id);

function items(list, texts) {
  list.hidden = !texts.length;
  list.replaceChildren(...texts.map(([text, title]) => {
    const item = document.createElement("li");
    item.textContent = text;
    if (title) item.title = title;
    return item;
  }));
}

// A thing is shown by its name, and its IRI when the pointer is over it.
const shown = ({ name, value }) => (name ? [name, value] : [value]);

export function showAnswer({ answer, more, notes, names, sparql }) {
  const yesNo = typeof answer === "boolean";
  const none = !yesNo && !answer.length;
  at("answer").hidden = false;
  at("verdict").textContent = yesNo ? (answer ? "Yes" : "No") : none ? "Nothing in the store answers this." : "";
  at("verdict").classList.toggle("none", none);
  items(at("answers"), yesNo ? [] : answer.map(shown));
  items(at("notes"), notes.map((note) => [note]));
  const placeholders = Object.entries(names).map(([placeholder, { name }]) => `${placeholder} is ${name}`);
  at("names").textContent = placeholders.length ? `In the graph and the form, ${placeholders.join(", ")}.` : "";
  at("sparql").textContent = sparql;
  if (yesNo) return answer ? "Yes." : "No.";
  if (none) return "No answers.";
  return `${more ? "More than " : ""}${answer.length} answer${answer.length === 1 ? "" : "s"}.`;
}
