"""The fifth set: pictures, tables, languages, generators and policies, by an author who had only the page of kinds."""
