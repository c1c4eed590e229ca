// Templates of html`...` are left alone: there, as in JSX, a line break between words would take the space away.
export default { printWidth: 120, embeddedLanguageFormatting: "off" };
