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

function askInstead({ iri, question }, ask) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = `Ask about ${iri} instead`;
  button.addEventListener("click", () => ask(question));
  return button;
}

// ask: what to do with another question.
export function showAnswer({ answer, more, notes, names, sparql }, ask) {
  const yesNo = typeof answer === "boolean";
  const none = !yesNo && !answer.length;
  at("answer").hidden = false;
  at("verdict").textContent = yesNo ? (answer ? "Yes" : "No") : none ? "Nothing in the store answers this." : "";
  at("verdict").classList.toggle("none", none);
  items(at("answers"), yesNo ? [] : answer.map(shown));
  items(at("notes"), notes.map((note) => [note]));
  at("instead").replaceChildren(...Object.values(names).flatMap(({ others }) => others.map((other) => askInstead(other, ask))));
  const placeholders = Object.entries(names).map(([placeholder, { name }]) => `${placeholder} is ${name}`);
  at("names").textContent = placeholders.length ? `In the graph and the form, ${placeholders.join(", ")}.` : "";
  at("sparql").textContent = sparql;
  if (yesNo) return answer ? "Yes." : "No.";
  if (none) return "No answers.";
  return `${more ? "More than " : ""}${answer.length} answer${answer.length === 1 ? "" : "s"}.`;
}
