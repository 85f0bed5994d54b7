"""Everything that imports streamlit and is not a page. Nothing here imports torch or touches a device."""
