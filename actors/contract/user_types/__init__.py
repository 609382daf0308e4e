"""Types of the program whose values enter and leave as JSON: which library reads them, and the types of pydantic."""
